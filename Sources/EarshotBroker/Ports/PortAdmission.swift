internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging
internal import ZMTP

/// Rules for new connections of a `StreamPort`: permitted users, and bounds for all, for each user, and for sandboxes.
struct PortAdmission {
    enum Verdict {
        case admitted
        /// Its user is not permitted, and may get an answer.
        case refused(String)
        case closedWithoutAnswer(String)
    }

    /// Part of the connections that one of several users may have: two users cannot exclude a third.
    private static let userShareDivisor = 4

    private let connectionLimit: Int
    var permittedUsers = PermittedUsers()
    /// Processes that may have `barredConnectionLimit` connections at most.
    var barredProcesses = SandboxedProcesses()
    var barredConnectionLimit = 0
    /// Number of connections of each user.
    private var connectionCounts: [UInt32: Int] = [:]
    /// Number of all connections.
    private var totalConnections = 0

    init(connectionLimit: Int) { self.connectionLimit = connectionLimit }

    /// Decides about an accepted connection.
    ///
    /// - Parameters:
    ///   - descriptor: Descriptor of the connection.
    ///   - ownConnections: Number of connections that its process has.
    mutating func verdict(
        on credentials: UnixSocket.Credentials, descriptor: Int32, ownConnections: @autoclosure () -> Int, now: LoopTime
    ) -> Verdict {
        if barredProcesses.madeConnection(pid: credentials.pid, socket: descriptor),
            ownConnections() >= barredConnectionLimit
        {
            return .closedWithoutAnswer(
                barredConnectionLimit == 0 ? "a worker may not be a client" : "a worker may connect only once")
        }
        var otherUser: String?
        if !permittedUsers.permits(credentials.uid, now: now) {
            guard permittedUsers.permitsOtherUsers else { return .closedWithoutAnswer("another user") }
            otherUser = "user \(credentials.uid) is not in the setting users"
        }
        if let bound = exceededBound(for: credentials.uid) { return .closedWithoutAnswer(otherUser ?? bound) }
        return otherUser.map { .refused($0) } ?? .admitted
    }

    /// Returns the bound that forbids another connection of a user; nil if there is room.
    private func exceededBound(for user: UInt32) -> String? {
        guard totalConnections < connectionLimit else {
            return "more than \(connectionLimit) connections, as many as descriptors allow"
        }
        guard permittedUsers.permitsOtherUsers, Self.userUnlessAdministrator(user) != nil else { return nil }
        let most = connectionLimit / Self.userShareDivisor
        return connectionCounts[user, default: 0] < most ? nil : "more than \(most) connections of user \(user)"
    }

    mutating func recordConnection(of user: UInt32) {
        connectionCounts[user, default: 0] += 1
        totalConnections += 1
    }

    mutating func recordDisconnection(of user: UInt32) {
        totalConnections -= 1
        connectionCounts[user, default: 1] -= 1
        if connectionCounts[user] == 0 { connectionCounts[user] = nil }
    }

    /// Returns a user; nil for this one and for root, which are the administrator.
    static func userUnlessAdministrator(_ user: UInt32) -> UInt32? { user == 0 || user == getuid() ? nil : user }
}

/// Bounds of unsent and incoming messages of a port's peers, and of the work for one peer in a pass.
struct PortBounds {
    /// Maximum number of unsent messages of one peer, of all kinds.
    var maximumUnsentMessages: Int
    /// Number of unsent messages of one peer, and of their bytes, at which terminals and progress are refused.
    var maximumUnsentDeliveries = Int.max
    var maximumTerminalBytes = Int.max
    var maximumProgressBytes = Int.max
    /// Unsent bytes of one peer at which parts of bodies are refused.
    var maximumDataBytes = Int.max
    /// Number of unread replies, and of their bytes, at which the broker stops reading from a peer.
    var maximumUnreadReplies = Int.max
    var maximumReplyBytes = Int.max
    /// Unsent bytes of all peers, and of replies among them, above which `guaranteedBytesPerPeer` replaces the bounds
    /// of each peer.
    var maximumTotalBytes = Int.max
    var maximumTotalReplyBytes = Int.max
    /// Unsent bytes that each peer is always allowed, and at which a full peer accepts messages again.
    var guaranteedBytesPerPeer = 65_536
    /// Maximum bytes of incomplete incoming frames of all peers.
    var incompleteFrameBytes: Int
    /// Bytes of a message that count as one additional message in its sender's turn.
    var bytesPerCountedMessage = Int.max
    /// Maximum time without a message after a connection was accepted, because each connection costs a descriptor.
    var firstMessageTimeout = Duration.seconds(10)

    /// Clients: any program of the user.
    ///
    /// A full window of 256 bodies of 64 KiB fits into memory. Four of the longest frames can arrive at once. An honest
    /// client reads replies soon, so a mebibyte of them means that it stopped reading. With one more part of a body of
    /// 256 KiB the unsent parts take at most a mebibyte.
    static let forClients = PortBounds(
        maximumUnsentMessages: 16_384, maximumUnsentDeliveries: 8_192, maximumTerminalBytes: 16 << 20,
        maximumProgressBytes: 256 << 10, maximumDataBytes: 768 << 10, maximumUnreadReplies: 8_192,
        maximumReplyBytes: 1 << 20, maximumTotalBytes: 64 << 20, maximumTotalReplyBytes: 16 << 20,
        incompleteFrameBytes: 17 << 20, bytesPerCountedMessage: 4_096)

    /// Workers: their slots bound their messages, and two of the longest bodies can arrive at once.
    ///
    /// Messages to a worker on another machine are of the kind `data`: four of the longest bodies of requests.
    static func forWorkers(frameBytes: Int) -> PortBounds {
        PortBounds(maximumUnsentMessages: 8_192, maximumDataBytes: 16 << 20, incompleteFrameBytes: 4 * frameBytes)
    }
}

/// Connections of users that are not permitted, until each has got an answer that its program can show, and the log of
/// all refused connections.
struct RefusedPeers {
    /// Maximum number of them at a time. Others are closed without an answer, so refused users occupy no more places.
    private static let maximumAnsweredPeers = 16
    /// Maximum length of a frame in bytes. HELLO is much shorter.
    static let frameBytes = 4_096

    /// Memory for their frames, apart from that of permitted users.
    let memory = ConnectionMemory(frameCapacity: Self.maximumAnsweredPeers * Self.frameBytes)
    private let logger: Logger
    private let socketPath: String
    private var peerNumbers: Set<UInt64> = []
    /// Number of refused connections since the last warning.
    private var unloggedRefusalCount = 0
    private var nextWarningTime = LoopTime(nanoseconds: 0)

    /// - Parameter path: Path of the socket, for the log.
    init(_ logger: Logger, _ path: String) {
        self.logger = logger
        self.socketPath = path
    }

    /// Whether another one can get an answer.
    var hasRoom: Bool { peerNumbers.count < Self.maximumAnsweredPeers }

    mutating func insert(_ number: UInt64) { peerNumbers.insert(number) }

    mutating func forget(_ number: UInt64) { peerNumbers.remove(number) }

    /// Logs refused connections, at most once per minute, because refused peers try again each second.
    mutating func logRefusal(_ reason: String, now: LoopTime) {
        unloggedRefusalCount += 1
        guard now >= nextWarningTime else { return }
        logger.warning(
            "refused connections",
            metadata: ["count": "\(unloggedRefusalCount)", "reason": "\(reason)", "socket": "\(socketPath)"])
        unloggedRefusalCount = 0
        nextWarningTime = now.advanced(by: .seconds(60))
    }

    /// Returns the head of the answer to a user.
    static func answerHead(to user: UInt32) -> [UInt8] {
        let reply = ErrorReply(
            code: "not-authorized",
            detail: "user \(user) may not use this bus: add it to `users` in the bus's configuration")
        return BrokerMessage.error(reply).encoded()
    }
}
