internal import EarshotLoop
internal import Glibc

/// Users that may connect to a socket: this user, and with a list of others also root and those.
struct PermittedUsers {
    /// Time for which a look-up of groups is valid. A user who joins or leaves a group needs a new login anyway.
    private static let groupLookupValidity = Duration.seconds(10)
    /// Maximum number of results kept: more than users connect within their validity.
    private static let maximumKnownUsers = 1_024

    /// Other users that are permitted.
    let otherUsers: UserList
    private let ownUser = getuid()
    private var cachedPermissions: [UInt32: (isPermitted: Bool, until: LoopTime)] = [:]

    init(otherUsers: UserList = UserList()) { self.otherUsers = otherUsers }

    /// Whether users besides this one are permitted.
    var permitsOtherUsers: Bool { !otherUsers.isEmpty }

    /// Returns whether a user is permitted.
    mutating func permits(_ user: UInt32, now: LoopTime) -> Bool {
        if user == ownUser { return true }
        guard permitsOtherUsers else { return false }
        if user == 0 { return true }
        if let known = cachedPermissions[user], now < known.until { return known.isPermitted }
        let isPermitted = otherUsers.contains(user) { Accounts.groups(of: user) }
        if cachedPermissions.count >= Self.maximumKnownUsers { cachedPermissions = [:] }
        cachedPermissions[user] = (isPermitted, now.advanced(by: Self.groupLookupValidity))
        return isPermitted
    }
}
