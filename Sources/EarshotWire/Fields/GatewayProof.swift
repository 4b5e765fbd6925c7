/// Secret with which the gateway states the principal of a session: 256 random bits, 64 lower-case hexadecimal digits on
/// the wire.
public struct GatewayProof: Equatable, Sendable, CustomStringConvertible {
    public let description: String

    /// Nil if `text` is not 64 lower-case hexadecimal digits.
    public init?(_ text: String) {
        guard Ascii.isSHA256(Array(text.utf8)[...]) else { return nil }
        description = text
    }

    /// Compares two secrets in constant time.
    public static func == (_ left: GatewayProof, _ right: GatewayProof) -> Bool {
        ConstantTime.isEqual(left.description.utf8, right.description.utf8)
    }
}
