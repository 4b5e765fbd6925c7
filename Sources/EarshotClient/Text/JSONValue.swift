internal import EarshotWire

/// JSON value (RFC 8259), with its parser, for answers to QUERY and the API of the door. Members keep their order.
package enum JSONValue: Equatable {
    /// A number, a Boolean or null, as received.
    case scalar(String)
    case string(String)
    case array([JSONValue])
    case object([Member])

    /// Member of an object.
    package struct Member: Equatable {
        package let name: String
        package let value: JSONValue

        package init(name: String, value: JSONValue) {
            self.name = name
            self.value = value
        }

        fileprivate var inlineText: String {
            if case .object = value { return "\(name) (\(value.inlineText))" }
            return "\(name) \(value.inlineText)"
        }
    }

    /// Maximum nesting depth. Answers of the broker use three levels.
    private static let maximumDepth = 16

    /// Parses `bytes`; nil if they are not JSON.
    package init?(_ bytes: [UInt8]) {
        var reader = Reader(unreadBytes: bytes[...])
        guard let value = reader.readValue(depth: 0), reader.isAtEnd() else { return nil }
        self = value
    }

    /// Returns a member of an object by its name.
    package func member(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name == name }?.value
    }

    /// The items of an array; nil for another value.
    package var items: [JSONValue]? { if case .array(let items) = self { items } else { nil } }

    /// Returns the items of the array with a name; none without an array.
    package func items(ofMember name: String) -> [JSONValue] { member(name)?.items ?? [] }

    /// Returns the integer with a name.
    package func integer(ofMember name: String) -> Int? { member(name)?.scalarText.flatMap { Int($0) } }

    /// Returns the integers in the array with a name.
    package func integers(ofMember name: String) -> [Int] {
        items(ofMember: name).compactMap { $0.scalarText.flatMap { Int($0) } }
    }

    /// A string, or a number as received; nil for an array or an object.
    package var scalarText: String? {
        switch self {
        case .scalar(let text), .string(let text): text
        case .array, .object: nil
        }
    }

    /// Renders one line per member, and one indented line per item of an array. Lines have at most 79 columns, and
    /// continue with an indent.
    package func reportText() -> String {
        guard case .object(let members) = self else { return inlineText + "\n" }
        return members.map { member in
            guard case .array(let items) = member.value else {
                return Self.wrappedLines("\(member.name): ", member.value.inlineParts, indent: 4)
            }
            return "\(member.name): \(items.count)\n"
                + items.map { Self.wrappedLines("  ", $0.inlineParts, indent: 6) }.joined()
        }.joined()
    }

    /// Joins `parts` with commas, in lines of at most 79 columns as far as the parts permit.
    private static func wrappedLines(_ label: String, _ parts: [String], indent: Int) -> String {
        var lines = [label]
        for (index, part) in parts.enumerated() {
            let text = part + (index == parts.count - 1 ? "" : ",")
            let last = lines[lines.count - 1]
            if index > 0, last.count + 1 + text.count > 79 {
                lines.append(String(repeating: " ", count: indent) + text)
            } else {
                lines[lines.count - 1] = last + (index == 0 ? "" : " ") + text
            }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// Members of an object as separate phrases; one phrase for other values.
    private var inlineParts: [String] {
        guard case .object(let members) = self, !members.isEmpty else { return [inlineText] }
        return members.map(\.inlineText)
    }

    /// Renders two columns, names and values. Items of an array have one line each.
    package func tableText() -> String {
        guard case .object(let members) = self else { return inlineText + "\n" }
        let width = members.reduce(0) { max($0, $1.name.count) } + 2
        return members.map { member in
            let values =
                if case .array(let items) = member.value { items.map(\.inlineText) } else { [member.value.inlineText] }
            let lines = values.isEmpty ? ["none"] : values
            return lines.enumerated().map { line, value in
                let name = line == 0 ? member.name : ""
                return name + String(repeating: " ", count: width - name.count) + value + "\n"
            }.joined()
        }.joined()
    }

    private var inlineText: String {
        switch self {
        case .scalar(let text), .string(let text): TerminalText.escaped(text)
        case .array(let items): items.map(\.inlineText).joined(separator: ", ")
        case .object(let members):
            members.isEmpty ? "none" : members.map(\.inlineText).joined(separator: ", ")
        }
    }

    private struct Reader {
        var unreadBytes: ArraySlice<UInt8>

        mutating func readValue(depth: Int) -> JSONValue? {
            guard depth < maximumDepth else { return nil }
            skipSpace()
            switch unreadBytes.first {
            case UInt8(ascii: "{"): return readObject(depth)
            case UInt8(ascii: "["): return readArray(depth)
            case UInt8(ascii: "\""): return readString().map { .string($0) }
            default:
                let bytes = unreadBytes.prefix { !",]} \t\r\n".utf8.contains($0) }
                unreadBytes = unreadBytes[bytes.endIndex...]
                let word = String(decoding: bytes, as: UTF8.self)
                let isNumber = bytes.allSatisfy { $0.isDigit || "+-.eE".utf8.contains($0) } && Double(word) != nil
                return isNumber || ["true", "false", "null"].contains(word) ? .scalar(word) : nil
            }
        }

        /// Returns whether nothing but white space is left.
        mutating func isAtEnd() -> Bool {
            skipSpace()
            return unreadBytes.isEmpty
        }

        private mutating func readObject(_ depth: Int) -> JSONValue? {
            var members: [Member] = []
            let isComplete = readList("{", "}") { reader in
                reader.skipSpace()
                guard let name = reader.readString(), reader.skipScalar(":"),
                    let value = reader.readValue(depth: depth + 1)
                else { return false }
                members.append(Member(name: name, value: value))
                return true
            }
            return isComplete ? .object(members) : nil
        }

        private mutating func readArray(_ depth: Int) -> JSONValue? {
            var items: [JSONValue] = []
            let isComplete = readList("[", "]") { reader in
                guard let value = reader.readValue(depth: depth + 1) else { return false }
                items.append(value)
                return true
            }
            return isComplete ? .array(items) : nil
        }

        private mutating func readList(
            _ begin: Unicode.Scalar, _ end: Unicode.Scalar, _ item: (inout Reader) -> Bool
        ) -> Bool {
            guard skipScalar(begin) else { return false }
            if skipScalar(end) { return true }
            repeat {
                guard item(&self) else { return false }
            } while skipScalar(",")
            return skipScalar(end)
        }

        private mutating func readString() -> String? {
            guard skipScalar("\"") else { return nil }
            var bytes: [UInt8] = []
            while let byte = unreadBytes.popFirst() {
                switch byte {
                case UInt8(ascii: "\""): return String(validating: bytes, as: UTF8.self)
                case 0..<0x20: return nil
                case UInt8(ascii: "\\"):
                    guard let escaped = unreadBytes.popFirst() else { return nil }
                    switch escaped {
                    case UInt8(ascii: "n"): bytes.append(0x0a)
                    case UInt8(ascii: "t"): bytes.append(0x09)
                    case UInt8(ascii: "r"): bytes.append(0x0d)
                    case UInt8(ascii: "b"): bytes.append(0x08)
                    case UInt8(ascii: "f"): bytes.append(0x0c)
                    case UInt8(ascii: "u"):
                        guard let scalar = readScalar() else { return nil }
                        bytes += String(Character(scalar)).utf8
                    default:
                        guard "\"\\/".utf8.contains(escaped) else { return nil }
                        bytes.append(escaped)
                    }
                default: bytes.append(byte)
                }
            }
            return nil
        }

        /// Reads the digits of an escape, and a second escape if the first is half of a surrogate pair.
        private mutating func readScalar() -> Unicode.Scalar? {
            guard let first = readUTF16Unit() else { return nil }
            guard UTF16.isLeadSurrogate(first) else { return Unicode.Scalar(first) }
            guard unreadBytes.starts(with: "\\u".utf8) else { return nil }
            unreadBytes = unreadBytes.dropFirst(2)
            guard let second = readUTF16Unit(), UTF16.isTrailSurrogate(second) else { return nil }
            return Unicode.Scalar(0x10000 + (UInt32(first) - 0xd800) << 10 + UInt32(second) - 0xdc00)
        }

        private mutating func readUTF16Unit() -> UInt16? {
            let digits = unreadBytes.prefix(4).compactMap(\.hexValue)
            guard digits.count == 4 else { return nil }
            unreadBytes = unreadBytes.dropFirst(4)
            return digits.reduce(0) { $0 << 4 | UInt16($1) }
        }

        private mutating func skipScalar(_ scalar: Unicode.Scalar) -> Bool {
            skipSpace()
            guard unreadBytes.first == UInt8(ascii: scalar) else { return false }
            unreadBytes = unreadBytes.dropFirst()
            return true
        }

        private mutating func skipSpace() {
            unreadBytes = unreadBytes.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0a || $0 == 0x0d }
        }
    }
}
