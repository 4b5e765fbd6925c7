public import EarshotWire

/// Name of a client's key: 1 to 60 ASCII letters, digits and `. _ : @ -`.
public struct KeyName: Hashable, Sendable, CustomStringConvertible {
    /// Prefix of the principals of keys, which no local user has.
    private static let prefix = "key:"
    /// Description of the possible names, for messages.
    public static let bounds = "1 to 60 letters, digits and . _ : @ -"

    public let description: String
    /// Principal of the sessions of this key: `key:NAME`.
    public let principal: PrincipalName

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard !text.isEmpty, let principal = PrincipalName(Self.prefix + text) else { return nil }
        description = text
        self.principal = principal
    }
}
