/// One field of a `HeaderFields`, as bytes: what a server sends need not be UTF-8.
public struct HeaderField: Hashable, Sendable {
    /// The name as it was spelled, a token.
    public let name: ArraySlice<UInt8>

    /// The value without the blanks around it.
    public let value: ArraySlice<UInt8>

    /// Whether the field has this name, in any case.
    ///
    /// - Parameter lowercase: The name, lower-case.
    public func isNamed(_ lowercase: String) -> Bool {
        name.count == lowercase.utf8.count && zip(name, lowercase.utf8).allSatisfy { $0.lowercased == $1 }
    }
}
