internal import EarshotLoop
internal import Glibc

/// Rules for new connections of a `StreamPort`: permitted users, and bounds for all, for each user, and for sandboxes.
struct PortAdmission {
    enum Verdict {
        case admitted
        /// Its user is not permitted, and may get an answer.
        case refused(String)
        case closed(String)
    }

    /// Part of the connections that one of several users may have: two users cannot exclude a third.
    private static let userShare = 4

    private let connectionLimit: Int
    var users = PermittedUsers()
    /// Processes that may have `barredConnections` connections at most.
    var barredProcesses = SandboxedProcesses()
    var barredConnections = 0
    /// Number of connections of each user.
    private var connections: [UInt32: Int] = [:]
    /// Number of all connections.
    private var count = 0

    init(connectionLimit: Int) { self.connectionLimit = connectionLimit }

    /// Decides about an accepted connection.
    ///
    /// - Parameters:
    ///   - descriptor: Descriptor of the connection.
    ///   - own: Number of connections that its process has.
    mutating func verdict(
        on credentials: UnixSocket.Credentials, _ descriptor: Int32, own: @autoclosure () -> Int, now: LoopTime
    ) -> Verdict {
        if barredProcesses.contains(credentials.pid, descriptor), own() >= barredConnections {
            return .closed(
                barredConnections == 0 ? "a worker may not be a client" : "a worker may connect only once")
        }
        var otherUser: String?
        if !users.permits(credentials.uid, now: now) {
            guard users.isShared else { return .closed("another user") }
            otherUser = "user \(credentials.uid) is not in the setting users"
        }
        if let bound = bound(for: credentials.uid) { return .closed(otherUser ?? bound) }
        return otherUser.map { .refused($0) } ?? .admitted
    }

    /// Returns the bound that forbids another connection of a user; nil if there is room.
    private func bound(for user: UInt32) -> String? {
        guard count < connectionLimit else {
            return "more than \(connectionLimit) connections, as many as descriptors allow"
        }
        guard users.isShared, Self.otherUser(user) != nil else { return nil }
        let most = connectionLimit / Self.userShare
        return connections[user, default: 0] < most ? nil : "more than \(most) connections of user \(user)"
    }

    mutating func connected(_ user: UInt32) {
        connections[user, default: 0] += 1
        count += 1
    }

    mutating func disconnected(_ user: UInt32) {
        count -= 1
        connections[user, default: 1] -= 1
        if connections[user] == 0 { connections[user] = nil }
    }

    /// Returns a user; nil for this one and for root, which are the administrator.
    static func otherUser(_ user: UInt32) -> UInt32? { user == 0 || user == getuid() ? nil : user }
}
