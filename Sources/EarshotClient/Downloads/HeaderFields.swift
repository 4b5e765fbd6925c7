internal import EarshotLoop
internal import Synchronization

/// The fields of a response's header, in the order in which they came.
public struct HeaderFields: Sendable, Equatable, RandomAccessCollection {
    /// Takes the fields apart when the first one is asked for: who wants a body does not ask.
    private final class Block: Sendable {
        private struct State {
            let lines: [UInt8]
            var fields: [HeaderField]?
        }

        private let state: Mutex<State>

        init(_ lines: [UInt8]) {
            state = Mutex(State(lines: lines))
        }

        var fields: [HeaderField] {
            state.withLock(of: self) { state in
                let fields = state.fields ?? HeaderFields.fields(of: state.lines)
                state.fields = fields
                return fields
            }
        }
    }

    private let block: Block

    /// - Parameter lines: each ends in LF; what has no colon is left out.
    init(_ lines: [UInt8]) {
        block = Block(lines)
    }

    /// Where the first field is.
    public var startIndex: Int { block.fields.startIndex }
    /// Behind the last field.
    public var endIndex: Int { block.fields.endIndex }
    /// The field at a place in their order.
    public subscript(position: Int) -> HeaderField { block.fields[position] }

    /// The value of the first field of this name, in any case of letters.
    public subscript(name: String) -> String? {
        first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// The values of all fields of this name, in any case of letters.
    public func values(_ name: String) -> [String] {
        filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }

    public static func == (left: HeaderFields, right: HeaderFields) -> Bool { left.block.fields == right.block.fields }

    private static func fields(of lines: [UInt8]) -> [HeaderField] {
        lines.split(separator: UInt8(ascii: "\n")).compactMap { line in
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return nil }
            return HeaderField(
                String(decoding: line[..<colon], as: UTF8.self), trimmed(line[line.index(after: colon)...]))
        }
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> String {
        let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 }
        var rest = bytes.drop(while: isBlank)
        while let last = rest.last, isBlank(last) { rest.removeLast() }
        return String(decoding: rest, as: UTF8.self)
    }
}
