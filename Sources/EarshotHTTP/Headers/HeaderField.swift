internal import EarshotWire

/// Field of a `HeaderFields` as bytes, because a server's fields need not be UTF-8.
public struct HeaderField: Hashable, Sendable {
    /// Name with its original spelling, a token.
    public let name: ArraySlice<UInt8>

    /// Value without leading and trailing blanks.
    public let value: ArraySlice<UInt8>

    /// Returns whether the field has this name, in any case.
    ///
    /// - Parameter lowercase: Name in lower case.
    public func isNamed(_ lowercase: String) -> Bool {
        name.count == lowercase.utf8.count && zip(name, lowercase.utf8).allSatisfy { $0.lowercased == $1 }
    }
}
