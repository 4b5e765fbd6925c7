internal import Glibc

/// Users, and groups that stand for their members, by their IDs.
public struct UserList: Equatable, Sendable {
    /// Name in a list that cannot be resolved.
    public struct UnknownName: Error, Equatable, CustomStringConvertible {
        let name: String

        public init(name: String) {
            self.name = name
        }

        public var description: String {
            name.hasPrefix("@")
                ? "there is no group \(name.dropFirst()): create it, or correct the name"
                : "there is no user \(name): create it, or correct the name; a group has the form @NAME"
        }
    }

    private var users: Set<UInt32> = []
    private var groups: Set<UInt32> = []

    /// Whether the list is empty.
    public var isEmpty: Bool { users.isEmpty && groups.isEmpty }

    /// Creates an empty list.
    public init() {}

    /// Resolves names of users, `@` and the names of groups, and numeric IDs in place of names.
    public init(_ names: [String]) throws(UnknownName) {
        for name in names {
            let isGroup = name.hasPrefix("@")
            let text = isGroup ? String(name.dropFirst()) : name
            // Like chown(1): an existing name of digits takes precedence over the number.
            guard let id = (isGroup ? Accounts.group(named: text) : Accounts.user(named: text)) ?? Self.parseID(text)
            else { throw UnknownName(name: name) }
            if isGroup { groups.insert(id) } else { users.insert(id) }
        }
    }

    /// Returns whether the list names a user or one of the user's groups.
    ///
    /// - Parameter memberships: Returns the user's groups. Called only if the result depends on them.
    public func contains(_ user: UInt32, memberships: () -> Set<UInt32>) -> Bool {
        if users.contains(user) { return true }
        return !groups.isEmpty && !groups.isDisjoint(with: memberships())
    }

    /// Returns the ID of a user by name or number; nil if there is no user of this name.
    public static func parseUserID(_ text: String) -> UInt32? {
        text.hasPrefix("@") ? nil : Accounts.user(named: text) ?? parseID(text)
    }

    /// The largest number means no user to chown(2).
    private static func parseID(_ text: String) -> UInt32? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return UInt32(text).flatMap { $0 == .max ? nil : $0 }
    }
}
