internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// Header fields of a response, in their original order.
public struct HeaderFields: Sendable, Equatable, RandomAccessCollection {
    /// Parses the fields on first access.
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
                let fields = state.fields ?? HeaderFields.parseFields(state.lines)
                state.fields = fields
                return fields
            }
        }
    }

    private let block: Block

    /// Creates the fields of a header.
    ///
    /// - Parameter lines: field lines, each with a final LF. Lines without a colon are ignored.
    init(_ lines: [UInt8]) {
        block = Block(lines)
    }

    /// Index of the first field.
    public var startIndex: Int { block.fields.startIndex }
    /// Index after the last field.
    public var endIndex: Int { block.fields.endIndex }
    /// The field at an index.
    ///
    /// - Parameter position: index from ``startIndex`` to below ``endIndex``.
    public subscript(position: Int) -> HeaderField { block.fields[position] }

    /// The value of the first field with a name; nil if there is none.
    ///
    /// - Parameter name: name of the field, in any case.
    public subscript(name: String) -> String? {
        first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// Returns the values of all fields with a name.
    ///
    /// - Parameter name: name of the field, in any case.
    /// - Returns: the values in their order; empty if there are none.
    public func values(_ name: String) -> [String] {
        filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }

    /// Returns whether both have equal fields in the same order.
    ///
    /// - Parameters:
    ///   - left: header fields.
    ///   - right: header fields.
    public static func == (left: HeaderFields, right: HeaderFields) -> Bool { left.block.fields == right.block.fields }

    private static func parseFields(_ lines: [UInt8]) -> [HeaderField] {
        lines.split(separator: UInt8(ascii: "\n")).compactMap { line in
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return nil }
            return HeaderField(
                String(decoding: line[..<colon], as: UTF8.self),
                String(decoding: line[(colon + 1)...].trimmed, as: UTF8.self))
        }
    }
}

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
