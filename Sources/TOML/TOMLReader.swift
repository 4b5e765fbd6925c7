/// Reader of TOML 1.0 without dates, times and arrays of tables, which no file of this program needs.
///
/// It traps on no text, and bounds its recursion.
package struct TOMLReader {
    /// Error in a text.
    package struct Fault: Error, Equatable {
        /// Number of the line, from 1.
        package let line: Int
        /// Description of the error. It contains keys and no values, which may be secrets.
        package let message: String
    }

    /// Maximum number of names in a header, and of names and arrays around a value. A rule of an origin needs three
    /// names.
    private static let maximumDepth = 32

    /// U+FEFF in UTF-8, with which some programs begin a text.
    private static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// Text without a byte order mark, and with LF as its line ends.
    private let bytes: [UInt8]
    private var position = 0
    /// Table of the present section.
    private var currentTable: TOMLTable
    /// Number of names and arrays around `position`.
    private var depth = 0

    /// Returns the table of a text in UTF-8.
    package static func parse(_ text: [UInt8]) throws(Fault) -> TOMLTable {
        let root = TOMLTable(.header)
        var reader = TOMLReader(bytes: try checkedText(text), section: root)
        while let next = try reader.nextAfterBlankLines() {
            if next == "[" { try reader.readHeader(root) } else { try reader.readKeyValue(into: reader.currentTable) }
            reader.skipBlanks()
            guard reader.nextCharacter == nil || reader.nextCharacter == "\n" || reader.nextCharacter == "#" else {
                throw reader.fault("the line must end here; write each key in a line of its own")
            }
        }
        return root
    }

    private init(bytes: [UInt8], section: TOMLTable) {
        self.bytes = bytes
        self.currentTable = section
    }

    private static func checkedText(_ text: [UInt8]) throws(Fault) -> [UInt8] {
        let text = text.starts(with: byteOrderMark) ? text.dropFirst(byteOrderMark.count) : text[...]
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count)
        let lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: "\n")) }
            let endsInReturn = line.last == UInt8(ascii: "\r") && line.endIndex < text.endIndex
            let line = endsInReturn ? line.dropLast() : line
            if let byte = line.first(where: { $0 < 0x20 && $0 != UInt8(ascii: "\t") || $0 == 0x7f }) {
                let name = byte == 0 ? "a zero byte" : "control character \(byte)"
                throw Fault(line: index + 1, message: "the line contains \(name); remove it")
            }
            guard String(validating: line, as: UTF8.self) != nil else {
                throw Fault(line: index + 1, message: "the line is not UTF-8; save the file in that encoding")
            }
            bytes += line
        }
        return bytes
    }

    // MARK: Characters

    /// The next byte as a character; bytes of longer characters have no meaning of their own. Nil at the end.
    private var nextCharacter: Unicode.Scalar? { position < bytes.count ? Unicode.Scalar(bytes[position]) : nil }

    private func fault(_ sentence: String, at place: Int? = nil) -> Fault {
        let before = bytes[..<(place ?? self.position)]
        return Fault(line: before.count { $0 == UInt8(ascii: "\n") } + 1, message: sentence)
    }

    private var tooDeepFault: Fault { fault("names and arrays may be \(Self.maximumDepth) levels deep") }

    /// Skips a character, if it is the next one.
    private mutating func skip(_ character: Unicode.Scalar) -> Bool {
        guard nextCharacter == character else { return false }
        position += 1
        return true
    }

    private mutating func skipBlanks() { while nextCharacter == " " || nextCharacter == "\t" { position += 1 } }

    /// Skips blanks, comments and ends of lines, and returns the next character.
    private mutating func nextAfterBlankLines() throws(Fault) -> Unicode.Scalar? {
        repeat {
            skipBlanks()
            if nextCharacter == "#" { while nextCharacter != nil, nextCharacter != "\n" { position += 1 } }
        } while skip("\n")
        return nextCharacter
    }

    // MARK: Keys

    /// Reads `[name.name]` and begins its section.
    private mutating func readHeader(_ root: TOMLTable) throws(Fault) {
        let start = position
        position += 1
        guard nextCharacter != "[" else {
            throw fault("arrays of tables are not supported; write a table such as [name]")
        }
        var names = try self.readDottedKey()
        guard skip("]") else { throw fault("the closing bracket ] of the header is missing") }
        let last = names.removeLast()
        var table = root
        for name in names { table = try subtable(of: table, named: name, definition: .subtableHeader, at: start) }
        currentTable = try subtable(of: table, named: last, definition: .header, at: start)
    }

    /// Reads `name.name = value` into a table.
    private mutating func readKeyValue(into table: TOMLTable) throws(Fault) {
        let start = position
        var names = try self.readDottedKey()
        guard skip("=") else { throw fault("= must follow the key, such as key = value") }
        skipBlanks()
        let last = names.removeLast()
        var table = table
        for name in names { table = try subtable(of: table, named: name, definition: .dottedKey, at: start) }
        guard table[last] == nil else { throw fault("\(last) has a value already; remove one", at: start) }
        depth += names.count + 1
        defer { depth -= names.count + 1 }
        table.add(last, try readValue(of: last))
    }

    /// Returns the table of a name in a header or a dotted key, and adds it if it is missing.
    private func subtable(
        of table: TOMLTable, named name: String, definition: TOMLTable.Definition, at start: Int
    ) throws(Fault) -> TOMLTable {
        guard let value = table[name] else {
            let inner = TOMLTable(definition)
            table.add(name, .table(inner))
            return inner
        }
        guard let inner = value.table else { throw fault("\(name) has a value already, and is no table", at: start) }
        switch (definition, inner.definition) {
        case (.subtableHeader, .subtableHeader), (.subtableHeader, .header), (.subtableHeader, .dottedKey),
            (.dottedKey, .dottedKey):
            break
        case (.header, .subtableHeader), (.dottedKey, .subtableHeader): inner.definition = definition
        default: throw fault("the table \(name) is defined already; put all its keys in one place", at: start)
        }
        return inner
    }

    /// Reads names with dots between them.
    private mutating func readDottedKey() throws(Fault) -> [String] {
        var names: [String] = []
        repeat {
            skipBlanks()
            names.append(try readKeyName())
            skipBlanks()
            guard depth + names.count <= Self.maximumDepth else { throw tooDeepFault }
        } while skip(".")
        return names
    }

    private mutating func readKeyName() throws(Fault) -> String {
        if nextCharacter == "\"" || nextCharacter == "'" { return try readString(isKey: true) }
        let start = position
        while let nextCharacter, Self.isBareKeyCharacter(nextCharacter) { position += 1 }
        guard position > start else {
            throw fault("a key must stand here: letters, digits, - and _, or any characters in quotes")
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private static func isBareKeyCharacter(_ character: Unicode.Scalar) -> Bool {
        switch character {
        case "a"..."z", "A"..."Z", "0"..."9", "_", "-": true
        default: false
        }
    }

    // MARK: Values

    /// Reads the value of a key, or one in its array.
    private mutating func readValue(of key: String) throws(Fault) -> TOMLValue {
        switch nextCharacter {
        case "\"", "'": return .string(try readString(isKey: false))
        case "[": return .array(try readArray(of: key))
        case "{": return .table(try readInlineTable(of: key))
        default: break
        }
        let word = bytes[position...].prefix { !" \t\n,]}#".utf8.contains($0) }
        guard let value = Self.numberOrBoolean(String(decoding: word, as: UTF8.self)) else {
            let first = word.first.map { Unicode.Scalar($0) }
            let isTime = first.map { ("0"..."9").contains($0) } == true && word.contains { "-:".utf8.contains($0) }
            throw fault(
                "\(key) must be a string in quotes"
                    + (isTime
                        ? "; dates and times are not supported"
                        : ", a number of 64 bits, true, false, an array or a table"))
        }
        position = word.endIndex
        return value
    }

    private mutating func readArray(of key: String) throws(Fault) -> [TOMLValue] {
        guard depth < Self.maximumDepth else { throw tooDeepFault }
        depth += 1
        defer { depth -= 1 }
        let start = position
        position += 1
        var values: [TOMLValue] = []
        while try nextAfterBlankLines() != "]" {
            guard nextCharacter != nil else { throw fault("the closing bracket ] of \(key) is missing", at: start) }
            values.append(try readValue(of: key))
            guard try nextAfterBlankLines() == "]" || skip(",") else {
                throw fault("a comma or the closing bracket ] of \(key) is missing")
            }
        }
        position += 1
        return values
    }

    private mutating func readInlineTable(of key: String) throws(Fault) -> TOMLTable {
        position += 1
        let table = TOMLTable(.inline)
        skipBlanks()
        if skip("}") { return table }
        repeat {
            try readKeyValue(into: table)
            skipBlanks()
        } while skip(",")
        guard skip("}") else {
            throw fault("a comma or the closing brace } of \(key) is missing; write the table in one line")
        }
        return table
    }

    /// Returns a number or a truth value; nil for any other word.
    private static func numberOrBoolean(_ word: String) -> TOMLValue? {
        switch word {
        case "true": return .bool(true)
        case "false": return .bool(false)
        case "inf", "+inf", "-inf", "nan", "+nan", "-nan": return Double(word).map { .double($0) }
        default: break
        }
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] where word.hasPrefix(prefix) {
            return validDigits(word.dropFirst(2), radix).flatMap { Int($0, radix: radix) }.map { .int($0) }
        }
        let (sign, number) = splitSign(word[...])
        let parts = number.split(maxSplits: 1, omittingEmptySubsequences: false) { $0 == "e" || $0 == "E" }
        let decimals = parts[0].split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard let whole = validDigits(decimals[0]), whole == "0" || !whole.hasPrefix("0") else { return nil }
        if parts.count == 1, decimals.count == 1 { return Int(sign + whole).map { .int($0) } }
        var text = sign + whole
        if decimals.count == 2 {
            guard let fraction = validDigits(decimals[1]) else { return nil }
            text += ".\(fraction)"
        }
        if parts.count == 2 {
            let (sign, number) = splitSign(parts[1])
            guard let exponent = validDigits(number) else { return nil }
            text += "e\(sign)\(exponent)"
        }
        return Double(text).map { .double($0) }
    }

    private static func splitSign(_ text: Substring) -> (sign: String, number: Substring) {
        text.hasPrefix("-") || text.hasPrefix("+") ? (String(text.prefix(1)), text.dropFirst()) : ("", text)
    }

    /// Returns digits without the underscores between them; nil for any other text.
    private static func validDigits(_ text: Substring, _ radix: Int = 10) -> String? {
        let groups = text.split(separator: "_", omittingEmptySubsequences: false)
        let areDigits = groups.allSatisfy { group in
            !group.isEmpty && group.allSatisfy { $0.isASCII && ($0.hexDigitValue ?? radix) < radix }
        }
        return areDigits ? groups.joined() : nil
    }

    // MARK: Strings

    /// Reads a string with one or, unless it is a key, three quotes around it.
    private mutating func readString(isKey: Bool) throws(Fault) -> String {
        let start = position
        let quote = bytes[position]
        let isLong = bytes[position...].prefix { $0 == quote }.count >= 3
        guard !isLong || !isKey else { throw fault("a key has one quote at each end") }
        position += isLong ? 3 : 1
        if isLong { _ = skip("\n") }
        var text: [UInt8] = []
        while let nextCharacter, isLong || nextCharacter != "\n" {
            if bytes[position] == quote {
                // Up to two quotes before the last three belong to the text.
                let count = isLong ? bytes[position...].prefix(5).prefix { $0 == quote }.count : 1
                let ends = !isLong || count >= 3
                text += repeatElement(quote, count: !isLong ? 0 : ends ? count - 3 : count)
                position += count
                if ends { return String(decoding: text, as: UTF8.self) }
            } else if nextCharacter == "\\", quote == UInt8(ascii: "\"") {
                try readEscape(isMultiline: isLong, into: &text)
            } else {
                text.append(bytes[position])
                position += 1
            }
        }
        throw fault("the closing quotes of the string are missing", at: start)
    }

    /// Reads an escape sequence.
    private mutating func readEscape(isMultiline isLong: Bool, into text: inout [UInt8]) throws(Fault) {
        let start = position
        position += 1
        let letter = nextCharacter
        if isLong {
            skipBlanks()
            if nextCharacter == "\n" {
                while skip("\n") { skipBlanks() }
                return
            }
        }
        position = min(start + 2, bytes.count)
        switch letter {
        case "\"", "\\": text.append(bytes[start + 1])
        case "b": text.append(0x08)
        case "t": text.append(0x09)
        case "n": text.append(0x0a)
        case "f": text.append(0x0c)
        case "r": text.append(0x0d)
        case "u", "U":
            let count = letter == "u" ? 4 : 8
            let digits = String(decoding: bytes[position...].prefix(count), as: UTF8.self)
            guard digits.count == count, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }),
                let scalar = UInt32(digits, radix: 16).flatMap(Unicode.Scalar.init)
            else { throw fault("\\u needs 4 and \\U 8 hexadecimal digits of a Unicode character", at: start) }
            text += String(scalar).utf8
            position += count
        default:
            throw fault(
                "an escape must be \\b, \\t, \\n, \\f, \\r, \\\", \\\\, \\uHHHH or \\UHHHHHHHH; write \\\\ for a backslash",
                at: start)
        }
    }
}

/// Table of a TOML file, as `TOMLReader` fills it.
package final class TOMLTable {
    /// Place that defines a table, which decides about later additions to it.
    enum Definition {
        /// A header of a table in it, such as `[a.b]` for `a`. Its own header may follow.
        case subtableHeader
        case header
        /// A dotted key, such as `a.b = 1` for `a`. Further dotted keys of the same section and headers may add to it.
        case dottedKey
        /// An inline table, which is complete.
        case inline
    }

    /// Keys in the order of the file.
    package private(set) var keys: [String] = []
    var definition: Definition
    /// By the bytes of the key: Swift's strings are also equal if they differ in their bytes, and those of TOML are
    /// not.
    private var values: [[UInt8]: TOMLValue] = [:]

    init(_ definition: Definition) { self.definition = definition }

    package subscript(key: String) -> TOMLValue? { values[Array(key.utf8)] }

    /// Adds a value. Its key must be new.
    func add(_ key: String, _ value: TOMLValue) {
        let previous = values.updateValue(value, forKey: Array(key.utf8))
        precondition(previous == nil, "the key \(key) has a value")
        keys.append(key)
    }
}

/// Value of a TOML file.
package enum TOMLValue {
    case string(String)
    case int(Int)
    case double(Double)
    case bool(Bool)
    case array([TOMLValue])
    case table(TOMLTable)

    /// The text; nil for another type, as in the properties below.
    package var string: String? { if case .string(let value) = self { value } else { nil } }
    package var int: Int? { if case .int(let value) = self { value } else { nil } }
    package var double: Double? { if case .double(let value) = self { value } else { nil } }
    package var array: [TOMLValue]? { if case .array(let value) = self { value } else { nil } }
    package var table: TOMLTable? { if case .table(let value) = self { value } else { nil } }
}
