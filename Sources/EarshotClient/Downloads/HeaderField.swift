/// One field of an HTTP header.
public struct HeaderField: Hashable, Sendable {
    /// Compared without regard to case.
    public let name: String
    /// Without spaces at its ends.
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }

    /// Whether it is one line that means one field: what else it held would be a field of somebody's choice.
    var isSayable: Bool {
        let isName = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
        return isName && value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 }
    }
}
