/// Rules about the names of declarations. Each function returns its violations as `path:line: problem`.
enum IdentifierRules {
    /// Words that identifiers do not contain, each with the words to use.
    static let forbidden: [Substring: String] = {
        let rows: [(words: String, instead: String)] = [
            ("settle settles settled settling", "end, resolve, update"),
            ("say says said saying unsaid", "send, sent, report"),
            ("tell tells told", "report, notify, send"),
            ("hear hears heard unheard", "receive, received"),
            ("ask asks asked asker askers", "request, query, submit"),
            ("give gives gave gift gifts", "provide, copy, serve, assign"),
            ("lend lends lent loosen", "assign, retain, raise"),
            ("owe owes owed", "expected, pending, unsent"),
            ("complaint complaints trouble troubles nonsense", "error, fault, malformed"),
            ("facility facilities", "features, services"),
            ("news wish wishes wished", "event, request, limit"),
            ("keeper keepers stranger strangers", "store, backend, other"),
            ("patience", "timeout"),
            ("aside apart hole lonely loyal deserted accused", "the state that is meant"),
        ]
        return Dictionary(
            uniqueKeysWithValues: rows.flatMap { row in row.words.split(separator: " ").map { ($0, row.instead) } })
    }()

    /// Pairs of words that identifiers do not contain.
    static let forbiddenPairs: Set = ["put out", "let go", "turn away", "take back"]

    /// Types of one name in several targets, each with the reason.
    static let shared: Set = [
        // The public form in the Swift library. Its users do not import EarshotHTTP.
        "HeaderField", "HeaderFields",
    ]

    /// Identifiers with a forbidden word. Names of tests in Python are sentences.
    static func violations(_ file: SourceFile) -> [String] {
        let code = file.path.hasSuffix(".py") ? pythonCode(file.lines) : file.code
        return code.enumerated().flatMap { index, line in
            identifiers(line).compactMap { identifier in
                guard !identifier.hasPrefix("test_"),
                    let problem = problem(of: identifier)
                else { return nil }
                return "\(file.path):\(index + 1): \(identifier): \(problem)"
            }
        }
    }

    /// Returns lines of Python without comments and literals.
    private static func pythonCode(_ lines: [String]) -> [String] {
        var quote: [UInt8] = []
        return lines.map { line in
            var kept: [UInt8] = []
            var rest = Array(line.utf8)[...]
            while let byte = rest.first {
                if !quote.isEmpty {
                    let isEnd = rest.starts(with: quote)
                    rest = rest.dropFirst(isEnd ? quote.count : byte == UInt8(ascii: "\\") ? 2 : 1)
                    if isEnd { quote = [] }
                } else if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") {
                    let long = [byte, byte, byte]
                    quote = rest.starts(with: long) ? long : [byte]
                    rest = rest.dropFirst(quote.count)
                } else if byte == UInt8(ascii: "#") {
                    break
                } else {
                    kept.append(rest.removeFirst())
                }
            }
            if quote.count == 1 { quote = [] }
            return String(decoding: kept, as: UTF8.self)
        }
    }

    private static func problem(of identifier: Substring) -> String? {
        let words = words(of: identifier)
        for word in words {
            if let instead = forbidden[Substring(word)] { return "\(word); write \(instead)" }
        }
        for (first, second) in zip(words, words.dropFirst()) where forbiddenPairs.contains("\(first) \(second)") {
            return "\(first) \(second); write the standard verb"
        }
        return nil
    }

    /// Returns the identifiers of a line of code. IdentifierRules between backticks that contain spaces are sentences.
    static func identifiers(_ line: String) -> [Substring] {
        tokens(line, joinedByDots: false).filter { $0 != "{" && $0 != "}" }
    }

    /// Splits a line of code into braces and names, which include their dots on request.
    private static func tokens(_ line: String, joinedByDots: Bool) -> [Substring] {
        let bytes = line.utf8
        var found: [Substring] = []
        var index = bytes.startIndex
        while index < bytes.endIndex {
            let start = index
            let byte = bytes[index]
            index = bytes.index(after: index)
            switch byte {
            case _ where isLetter(byte):
                while index < bytes.endIndex,
                    isLetter(bytes[index]) || isDigit(bytes[index]) || joinedByDots && bytes[index] == UInt8(ascii: ".")
                {
                    index = bytes.index(after: index)
                }
                found.append(line[start..<index])
            case UInt8(ascii: "{"), UInt8(ascii: "}"): found.append(line[start..<index])
            case UInt8(ascii: "`"):
                guard let end = bytes[index...].firstIndex(of: byte) else { continue }
                let name = line[index..<end]
                if !name.utf8.contains(UInt8(ascii: " ")) { found.append(name) }
                index = bytes.index(after: end)
            default: break
            }
        }
        return found
    }

    /// Returns the words of an identifier in lower case: `HTTPDoor` has `http` and `door`.
    static func words(of identifier: Substring) -> [String] {
        let bytes = Array(identifier.utf8)
        var words: [String] = []
        var word: [UInt8] = []
        for (index, byte) in bytes.enumerated() {
            let follows = index + 1 < bytes.count && isLower(bytes[index + 1])
            if isUpper(byte), let last = word.last, !isUpper(last) || follows { words.append(flushed(&word)) }
            if isLower(byte) || isUpper(byte) {
                word.append(byte)
            } else if !word.isEmpty {
                words.append(flushed(&word))
            }
        }
        return word.isEmpty ? words : words + [flushed(&word)]
    }

    private static func flushed(_ word: inout [UInt8]) -> String {
        defer { word = [] }
        return String(decoding: word, as: UTF8.self).lowercased()
    }

    private static func isLower(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "a") && byte <= UInt8(ascii: "z") }

    private static func isUpper(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") }

    private static func isDigit(_ byte: UInt8) -> Bool { byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") }

    private static func isLetter(_ byte: UInt8) -> Bool { isLower(byte) || isUpper(byte) || byte == UInt8(ascii: "_") }

    // MARK: Types

    /// Types with the same path in several targets, such as `A` or `A.B`.
    static func sharedTypes(in files: [SourceFile]) -> [String] {
        var places: [String: [(target: String, location: String)]] = [:]
        // The programs of `Tests/Bench` are packages of their own.
        for file in files where !file.path.hasPrefix("Tests/Bench/") {
            guard let target = file.target else { continue }
            for type in types(of: file) {
                places[type.path, default: []].append((target, "\(file.path):\(type.line)"))
            }
        }
        return places.sorted { $0.key < $1.key }.compactMap { path, found in
            guard !shared.contains(path), Set(found.map(\.target)).count > 1 else { return nil }
            return "\(found.map(\.location).sorted().joined(separator: ", ")): \(path) is a type of several targets"
        }
    }

    private static let keywords: Set<Substring> = [
        "struct", "class", "enum", "actor", "protocol", "typealias", "extension",
    ]

    /// Returns the declared types of a file. Types within functions are not included.
    static func types(of file: SourceFile) -> [(path: String, line: Int)] {
        var found: [(path: String, line: Int)] = []
        // IdentifierRules of the enclosing types; nil for another scope.
        var scopes: [String?] = []
        var opened: String?
        for (index, line) in file.code.enumerated() {
            let parts = tokens(line, joinedByDots: true)
            for (position, token) in parts.enumerated() {
                switch token {
                case "{":
                    scopes.append(opened)
                    opened = nil
                case "}": _ = scopes.popLast()
                case _ where keywords.contains(token):
                    // Not `class func`, a variable `actor`, or `import struct`.
                    guard line[token.endIndex...].dropFirst().first?.isUppercase == true,
                        position == 0 || parts[position - 1] != "import"
                    else { continue }
                    let name = String(parts[position + 1])
                    if token != "typealias" { opened = name }
                    if token != "extension", !scopes.contains(nil) {
                        found.append(((scopes.compactMap(\.self) + [name]).joined(separator: "."), index + 1))
                    }
                default: break
                }
            }
        }
        return found
    }
}
