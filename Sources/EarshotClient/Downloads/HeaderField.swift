/// Field of an HTTP header.
public struct HeaderField: Hashable, Sendable {
    /// Name, compared without case.
    public let name: String
    /// Value without surrounding spaces.
    public let value: String

    /// Creates a field. A request with an invalid field throws ``BusError/Code/invalidRequest``.
    ///
    /// - Parameters:
    ///   - name: 1 or more visible ASCII bytes without a colon.
    ///   - value: one line without control characters.
    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }

    /// Whether the field is valid as one line. Otherwise its text could inject another field.
    var isValid: Bool {
        let isName = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
        return isName && value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 }
    }
}
