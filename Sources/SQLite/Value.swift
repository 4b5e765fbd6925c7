/// Value of a parameter of a statement.
public enum Value: Equatable, Sendable {
    case null
    case integer(Int64)
    case text(String)
    case bytes([UInt8])

    /// Returns an integer.
    public static func integer(_ number: Int) -> Value { .integer(Int64(number)) }
    /// Returns 1 for true and 0 for false.
    public static func integer(_ flag: Bool) -> Value { .integer(flag ? 1 : 0) }
    /// Returns a text, or NULL for nil.
    public static func text(_ text: String?) -> Value { text.map { .text($0) } ?? .null }
    /// Returns bytes, or NULL for nil.
    public static func bytes(_ bytes: [UInt8]?) -> Value { bytes.map { .bytes($0) } ?? .null }
}
