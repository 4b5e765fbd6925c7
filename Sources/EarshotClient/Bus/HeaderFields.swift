/// The fields of a response's header, in the order in which they came.
public struct HeaderFields: Sendable, Equatable, RandomAccessCollection {
    private let fields: [HeaderField]

    /// - Parameter block: lines that end in LF; what has no colon is left out.
    init(_ block: [UInt8]) {
        fields = block.split(separator: UInt8(ascii: "\n")).compactMap { line in
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return nil }
            return HeaderField(
                String(decoding: line[..<colon], as: UTF8.self), Self.trimmed(line[line.index(after: colon)...]))
        }
    }

    /// Where the first field is.
    public var startIndex: Int { fields.startIndex }
    /// Behind the last field.
    public var endIndex: Int { fields.endIndex }
    /// The field at a place in their order.
    public subscript(position: Int) -> HeaderField { fields[position] }

    /// The value of the first field of this name, in any case of letters.
    public subscript(name: String) -> String? {
        first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// The values of all fields of this name, in any case of letters.
    public func values(_ name: String) -> [String] {
        filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> String {
        let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
        var rest = bytes.drop(while: isBlank)
        while let last = rest.last, isBlank(last) { rest.removeLast() }
        return String(decoding: rest, as: UTF8.self)
    }
}
