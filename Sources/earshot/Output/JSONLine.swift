internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Writer of one JSON object on one line. Control characters, which could manipulate the terminal that shows the line,
/// are escaped.
struct JSONLine {
    /// Members without the braces around them.
    private var members = JSONText(escaping: TerminalText.isControl)

    /// Appends a string; nothing for nil.
    mutating func appendMember(_ name: String, _ value: String?) {
        if let value { members.member(name, Self.replacingInvalidUTF8(value)) }
    }

    /// Appends a number; nothing for nil.
    mutating func appendMember(_ name: String, _ value: Int?) {
        if let value { members.member(name, value) }
    }

    /// Appends a number as written; nothing for nil.
    mutating func appendMember(_ name: String, number: String?) {
        if let number { members.member(name) { $0.value(literal: number) } }
    }

    /// Appends header fields, separated by LF: an object with an array of values for each name in lower case.
    mutating func appendMember(_ name: String, fields: [UInt8]) {
        var groupIndices: [String: Int] = [:]
        var groups: [(name: String, values: [String])] = []
        for field in fields.split(separator: UInt8(ascii: "\n")) {
            guard let colon = field.firstIndex(of: UInt8(ascii: ":")) else { continue }
            let name = Self.replacingInvalidUTF8(ByteText.text(of: Array(field[..<colon])).lowercased())
            let value = Self.replacingInvalidUTF8(
                ByteText.text(of: Array(field[(colon + 1)...].drop(while: \.isBlank))))
            if let index = groupIndices[name] {
                groups[index].values.append(value)
            } else {
                groupIndices[name] = groups.count
                groups.append((name, [value]))
            }
        }
        members.member(name) { json in
            json.object { json in
                for group in groups {
                    json.member(group.name) { $0.array(group.values) { json, value in json.value(value) } }
                }
            }
        }
    }

    /// Appends an array with an object for each item.
    mutating func appendMember<Item>(_ name: String, objects items: [Item], _ write: (inout JSONText, Item) -> Void) {
        members.member(name) { $0.array(items) { json, item in json.object { write(&$0, item) } } }
    }

    /// Returns the line with its line break.
    func finishedLine() -> [UInt8] { Array("{".utf8) + members.bytes + Array("}\n".utf8) }

    /// Replaces each byte that is not UTF-8 by U+FFFD, because JSON cannot represent it.
    private static func replacingInvalidUTF8(_ text: String) -> String {
        guard ByteText.containsNonUTF8Bytes(text) else { return text }
        return String(
            String.UnicodeScalarView(text.unicodeScalars.map { ByteText.byte(of: $0) == nil ? $0 : "\u{fffd}" }))
    }
}
