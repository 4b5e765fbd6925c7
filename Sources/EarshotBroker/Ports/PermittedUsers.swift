internal import EarshotLoop
internal import Glibc

/// Users that may connect to a socket: this user, and with a list of others also root and those.
struct PermittedUsers {
    /// Time for which a look-up of groups is valid. A user who joins or leaves a group needs a new login anyway.
    private static let validity = Duration.seconds(10)
    /// Maximum number of results kept: more than users connect within their validity.
    private static let mostKnown = 1_024

    /// Other users that are permitted.
    let others: UserList
    private let own = getuid()
    private var known: [UInt32: (isPermitted: Bool, until: LoopTime)] = [:]

    init(others: UserList = UserList()) { self.others = others }

    /// Whether users besides this one are permitted.
    var isShared: Bool { !others.isEmpty }

    /// Returns whether a user is permitted.
    mutating func permits(_ user: UInt32, now: LoopTime) -> Bool {
        if user == own { return true }
        guard isShared else { return false }
        if user == 0 { return true }
        if let known = known[user], now < known.until { return known.isPermitted }
        let isPermitted = others.contains(user) { Accounts.groups(of: user) }
        if known.count >= Self.mostKnown { known = [:] }
        known[user] = (isPermitted, now.advanced(by: Self.validity))
        return isPermitted
    }
}
