internal import EarshotClient
internal import EarshotLoop

/// Writer of one JSON object on one line.
struct JSONLine {
    private var bytes = [UInt8(ascii: "{")]

    init() {
        bytes.reserveCapacity(512)
    }

    /// Appends a string; nothing for nil.
    mutating func member(_ name: String, _ value: String?) {
        guard let value else { return }
        begin(name)
        append(quoted: value)
    }

    /// Appends a number; nothing for nil.
    mutating func member(_ name: String, _ value: Int?) {
        guard let value else { return }
        begin(name)
        bytes.append(contentsOf: String(value).utf8)
    }

    /// Appends a number as written; nothing for nil.
    mutating func member(_ name: String, number: String?) {
        guard let number else { return }
        begin(name)
        bytes.append(contentsOf: number.utf8)
    }

    /// Appends header fields, separated by LF: an object with an array of values for each name in lower case.
    mutating func member(_ name: String, fields: [UInt8]) {
        var places: [String: Int] = [:]
        var members: [(name: String, values: [String])] = []
        for field in fields.split(separator: UInt8(ascii: "\n")) {
            guard let colon = field.firstIndex(of: UInt8(ascii: ":")) else { continue }
            let name = ByteText.text(of: Array(field[..<colon])).lowercased()
            let value = ByteText.text(of: Array(field[(colon + 1)...].drop { $0 == 0x20 || $0 == 0x09 }))
            if let place = places[name] {
                members[place].values.append(value)
            } else {
                places[name] = members.count
                members.append((name, [value]))
            }
        }
        begin(name)
        bytes.append(UInt8(ascii: "{"))
        for (index, member) in members.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            append(quoted: member.name)
            bytes.append(contentsOf: ":[".utf8)
            for (index, value) in member.values.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                append(quoted: value)
            }
            bytes.append(UInt8(ascii: "]"))
        }
        bytes.append(UInt8(ascii: "}"))
    }

    /// Appends an array with an object for each item.
    mutating func member<Item>(_ name: String, objects items: [Item], _ write: (inout JSONLine, Item) -> Void) {
        begin(name)
        bytes.append(UInt8(ascii: "["))
        for (index, item) in items.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            var object = JSONLine()
            write(&object, item)
            bytes += object.bytes + [UInt8(ascii: "}")]
        }
        bytes.append(UInt8(ascii: "]"))
    }

    /// Returns the line with its line break.
    consuming func finished() -> [UInt8] {
        bytes.append(UInt8(ascii: "}"))
        bytes.append(UInt8(ascii: "\n"))
        return bytes
    }

    private mutating func begin(_ name: String) {
        if bytes.count > 1 { bytes.append(UInt8(ascii: ",")) }
        bytes.append(UInt8(ascii: "\""))
        bytes.append(contentsOf: name.utf8)
        bytes.append(UInt8(ascii: "\""))
        bytes.append(UInt8(ascii: ":"))
    }

    private mutating func append(quoted text: String) {
        bytes.append(UInt8(ascii: "\""))
        append(text)
        bytes.append(UInt8(ascii: "\""))
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x20..<0x7f).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }

    private mutating func append(_ value: String) {
        // Most strings need no escapes. A check of each character takes ten times as long.
        if value.utf8.allSatisfy(Self.isPlain) {
            bytes.append(contentsOf: value.utf8)
            return
        }
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": bytes.append(contentsOf: "\\\"".utf8)
            case "\\": bytes.append(contentsOf: "\\\\".utf8)
            default:
                if ByteText.byte(of: scalar) != nil {
                    // JSON cannot represent a byte that is not UTF-8.
                    bytes.append(contentsOf: "\u{fffd}".utf8)
                } else if TerminalText.isControl(scalar) {
                    // Control characters could manipulate the terminal that shows the line.
                    for unit in String(scalar).utf16 {
                        let digits = String(unit, radix: 16)
                        bytes.append(
                            contentsOf: ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).utf8)
                    }
                } else {
                    bytes.append(contentsOf: String(scalar).utf8)
                }
            }
        }
    }
}
