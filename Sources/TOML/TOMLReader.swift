/// Reader of TOML 1.0 without dates, times and arrays of tables, which no file of this program needs.
///
/// It traps on no text, and bounds its recursion.
package struct TOMLReader {
    /// Error in a text.
    package struct Fault: Error, Equatable {
        /// Number of the line, from 1.
        package let line: Int
        /// Description of the error. It contains keys and no values, which may be secrets.
        package let sentence: String
    }

    /// Maximum number of names in a header, and of names and arrays around a value. A rule of an origin needs three names.
    private static let mostLevels = 32

    /// U+FEFF in UTF-8, with which some programs begin a text.
    private static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// Text without a byte order mark, and with LF as its line ends.
    private let bytes: [UInt8]
    private var place = 0
    /// Table of the present section.
    private var section: TOMLTable
    /// Number of names and arrays around `place`.
    private var level = 0

    /// Returns the table of a text in UTF-8.
    package static func table(_ text: [UInt8]) throws(Fault) -> TOMLTable {
        let root = TOMLTable(.header)
        var reader = TOMLReader(bytes: try checked(text), section: root)
        while let next = try reader.nextInLines() {
            if next == "[" { try reader.header(root) } else { try reader.pair(reader.section) }
            reader.skipBlanks()
            guard reader.next == nil || reader.next == "\n" || reader.next == "#" else {
                throw reader.fault("the line must end here; write each key in a line of its own")
            }
        }
        return root
    }

    private init(bytes: [UInt8], section: TOMLTable) {
        self.bytes = bytes
        self.section = section
    }

    private static func checked(_ text: [UInt8]) throws(Fault) -> [UInt8] {
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
                throw Fault(line: index + 1, sentence: "the line contains \(name); remove it")
            }
            guard String(validating: line, as: UTF8.self) != nil else {
                throw Fault(line: index + 1, sentence: "the line is not UTF-8; save the file in that encoding")
            }
            bytes += line
        }
        return bytes
    }

    // MARK: Characters

    /// The next byte as a character; bytes of longer characters have no meaning of their own. Nil at the end.
    private var next: Unicode.Scalar? { place < bytes.count ? Unicode.Scalar(bytes[place]) : nil }

    private func fault(_ sentence: String, at place: Int? = nil) -> Fault {
        let before = bytes[..<(place ?? self.place)]
        return Fault(line: before.count { $0 == UInt8(ascii: "\n") } + 1, sentence: sentence)
    }

    private var tooDeep: Fault { fault("names and arrays may be \(Self.mostLevels) levels deep") }

    /// Skips a character, if it is the next one.
    private mutating func skip(_ character: Unicode.Scalar) -> Bool {
        guard next == character else { return false }
        place += 1
        return true
    }

    private mutating func skipBlanks() { while next == " " || next == "\t" { place += 1 } }

    /// Skips blanks, comments and ends of lines, and returns the next character.
    private mutating func nextInLines() throws(Fault) -> Unicode.Scalar? {
        repeat {
            skipBlanks()
            if next == "#" { while next != nil, next != "\n" { place += 1 } }
        } while skip("\n")
        return next
    }

    // MARK: Keys

    /// Reads `[name.name]` and begins its section.
    private mutating func header(_ root: TOMLTable) throws(Fault) {
        let start = place
        place += 1
        guard next != "[" else { throw fault("arrays of tables are not supported; write a table such as [name]") }
        var names = try self.names()
        guard skip("]") else { throw fault("the closing bracket ] of the header is missing") }
        let last = names.removeLast()
        var table = root
        for name in names { table = try inner(table, name, .lowerHeader, start) }
        section = try inner(table, last, .header, start)
    }

    /// Reads `name.name = value` into a table.
    private mutating func pair(_ table: TOMLTable) throws(Fault) {
        let start = place
        var names = try self.names()
        guard skip("=") else { throw fault("= must follow the key, such as key = value") }
        skipBlanks()
        let last = names.removeLast()
        var table = table
        for name in names { table = try inner(table, name, .dottedKey, start) }
        guard table[last] == nil else { throw fault("\(last) has a value already; remove one", at: start) }
        level += names.count + 1
        defer { level -= names.count + 1 }
        table.add(last, try value(of: last))
    }

    /// Returns the table of a name in a header or a dotted key, and adds it if it is missing.
    private func inner(
        _ table: TOMLTable, _ name: String, _ definition: TOMLTable.Definition, _ start: Int
    ) throws(Fault) -> TOMLTable {
        guard let value = table[name] else {
            let inner = TOMLTable(definition)
            table.add(name, .table(inner))
            return inner
        }
        guard let inner = value.table else { throw fault("\(name) has a value already, and is no table", at: start) }
        switch (definition, inner.definition) {
        case (.lowerHeader, .lowerHeader), (.lowerHeader, .header), (.lowerHeader, .dottedKey),
            (.dottedKey, .dottedKey):
            break
        case (.header, .lowerHeader), (.dottedKey, .lowerHeader): inner.definition = definition
        default: throw fault("the table \(name) is defined already; put all its keys in one place", at: start)
        }
        return inner
    }

    /// Reads names with dots between them.
    private mutating func names() throws(Fault) -> [String] {
        var names: [String] = []
        repeat {
            skipBlanks()
            names.append(try name())
            skipBlanks()
            guard level + names.count <= Self.mostLevels else { throw tooDeep }
        } while skip(".")
        return names
    }

    private mutating func name() throws(Fault) -> String {
        if next == "\"" || next == "'" { return try string(isKey: true) }
        let start = place
        while let next, Self.isBare(next) { place += 1 }
        guard place > start else {
            throw fault("a key must stand here: letters, digits, - and _, or any characters in quotes")
        }
        return String(decoding: bytes[start..<place], as: UTF8.self)
    }

    private static func isBare(_ character: Unicode.Scalar) -> Bool {
        switch character {
        case "a"..."z", "A"..."Z", "0"..."9", "_", "-": true
        default: false
        }
    }

    // MARK: Values

    /// Reads the value of a key, or one in its array.
    private mutating func value(of key: String) throws(Fault) -> TOMLValue {
        switch next {
        case "\"", "'": return .string(try string(isKey: false))
        case "[": return .array(try array(of: key))
        case "{": return .table(try inlineTable(of: key))
        default: break
        }
        let word = bytes[place...].prefix { !" \t\n,]}#".utf8.contains($0) }
        guard let value = Self.plainValue(String(decoding: word, as: UTF8.self)) else {
            let first = word.first.map { Unicode.Scalar($0) }
            let isTime = first.map { ("0"..."9").contains($0) } == true && word.contains { "-:".utf8.contains($0) }
            throw fault(
                "\(key) must be a string in quotes"
                    + (isTime
                        ? "; dates and times are not supported"
                        : ", a number of 64 bits, true, false, an array or a table"))
        }
        place = word.endIndex
        return value
    }

    private mutating func array(of key: String) throws(Fault) -> [TOMLValue] {
        guard level < Self.mostLevels else { throw tooDeep }
        level += 1
        defer { level -= 1 }
        let start = place
        place += 1
        var values: [TOMLValue] = []
        while try nextInLines() != "]" {
            guard next != nil else { throw fault("the closing bracket ] of \(key) is missing", at: start) }
            values.append(try value(of: key))
            guard try nextInLines() == "]" || skip(",") else {
                throw fault("a comma or the closing bracket ] of \(key) is missing")
            }
        }
        place += 1
        return values
    }

    private mutating func inlineTable(of key: String) throws(Fault) -> TOMLTable {
        place += 1
        let table = TOMLTable(.inline)
        skipBlanks()
        if skip("}") { return table }
        repeat {
            try pair(table)
            skipBlanks()
        } while skip(",")
        guard skip("}") else {
            throw fault("a comma or the closing brace } of \(key) is missing; write the table in one line")
        }
        return table
    }

    /// Returns a number or a truth value; nil for any other word.
    private static func plainValue(_ word: String) -> TOMLValue? {
        switch word {
        case "true": return .bool(true)
        case "false": return .bool(false)
        case "inf", "+inf", "-inf", "nan", "+nan", "-nan": return Double(word).map { .double($0) }
        default: break
        }
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] where word.hasPrefix(prefix) {
            return digits(word.dropFirst(2), radix).flatMap { Int($0, radix: radix) }.map { .int($0) }
        }
        let (sign, number) = signed(word[...])
        let parts = number.split(maxSplits: 1, omittingEmptySubsequences: false) { $0 == "e" || $0 == "E" }
        let decimals = parts[0].split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard let whole = digits(decimals[0]), whole == "0" || !whole.hasPrefix("0") else { return nil }
        if parts.count == 1, decimals.count == 1 { return Int(sign + whole).map { .int($0) } }
        var text = sign + whole
        if decimals.count == 2 {
            guard let fraction = digits(decimals[1]) else { return nil }
            text += ".\(fraction)"
        }
        if parts.count == 2 {
            let (sign, number) = signed(parts[1])
            guard let exponent = digits(number) else { return nil }
            text += "e\(sign)\(exponent)"
        }
        return Double(text).map { .double($0) }
    }

    private static func signed(_ text: Substring) -> (sign: String, number: Substring) {
        text.hasPrefix("-") || text.hasPrefix("+") ? (String(text.prefix(1)), text.dropFirst()) : ("", text)
    }

    /// Returns digits without the underscores between them; nil for any other text.
    private static func digits(_ text: Substring, _ radix: Int = 10) -> String? {
        let groups = text.split(separator: "_", omittingEmptySubsequences: false)
        let areDigits = groups.allSatisfy { group in
            !group.isEmpty && group.allSatisfy { $0.isASCII && ($0.hexDigitValue ?? radix) < radix }
        }
        return areDigits ? groups.joined() : nil
    }

    // MARK: Strings

    /// Reads a string with one or, unless it is a key, three quotes around it.
    private mutating func string(isKey: Bool) throws(Fault) -> String {
        let start = place
        let quote = bytes[place]
        let isLong = bytes[place...].prefix { $0 == quote }.count >= 3
        guard !isLong || !isKey else { throw fault("a key has one quote at each end") }
        place += isLong ? 3 : 1
        if isLong { _ = skip("\n") }
        var text: [UInt8] = []
        while let next, isLong || next != "\n" {
            if bytes[place] == quote {
                // Up to two quotes before the last three belong to the text.
                let count = isLong ? bytes[place...].prefix(5).prefix { $0 == quote }.count : 1
                let ends = !isLong || count >= 3
                text += repeatElement(quote, count: !isLong ? 0 : ends ? count - 3 : count)
                place += count
                if ends { return String(decoding: text, as: UTF8.self) }
            } else if next == "\\", quote == UInt8(ascii: "\"") {
                try escape(isLong, &text)
            } else {
                text.append(bytes[place])
                place += 1
            }
        }
        throw fault("the closing quotes of the string are missing", at: start)
    }

    /// Reads an escape sequence.
    private mutating func escape(_ isLong: Bool, _ text: inout [UInt8]) throws(Fault) {
        let start = place
        place += 1
        let letter = next
        if isLong {
            skipBlanks()
            if next == "\n" {
                while skip("\n") { skipBlanks() }
                return
            }
        }
        place = min(start + 2, bytes.count)
        switch letter {
        case "\"", "\\": text.append(bytes[start + 1])
        case "b": text.append(0x08)
        case "t": text.append(0x09)
        case "n": text.append(0x0a)
        case "f": text.append(0x0c)
        case "r": text.append(0x0d)
        case "u", "U":
            let count = letter == "u" ? 4 : 8
            let digits = String(decoding: bytes[place...].prefix(count), as: UTF8.self)
            guard digits.count == count, digits.allSatisfy({ $0.isASCII && $0.isHexDigit }),
                let scalar = UInt32(digits, radix: 16).flatMap(Unicode.Scalar.init)
            else { throw fault("\\u needs 4 and \\U 8 hexadecimal digits of a Unicode character", at: start) }
            text += String(scalar).utf8
            place += count
        default:
            throw fault(
                "an escape must be \\b, \\t, \\n, \\f, \\r, \\\", \\\\, \\uHHHH or \\UHHHHHHHH; write \\\\ for a backslash",
                at: start)
        }
    }
}
