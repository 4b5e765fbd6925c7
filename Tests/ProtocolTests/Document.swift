import Foundation

/// Parser of the machine-readable parts of documents of `protocols/`: grammars, commands, tables and examples.
///
/// Headings of grammars and commands end in the direction, such as `client to broker`. Several documents may have the
/// same heading; its section consists of all of theirs.
struct Document {
    /// Documents with messages of EAR/1.
    static let client = [
        "1-core.md", "1-requests.md", "2-sessions.md", "3-bodies.md", "5-durable.md", "7-reference.md",
        "administration.md",
    ]
    /// Documents with messages of EARW/1.
    static let worker = ["6-workers.md", "private.md"]
    /// Documents and direction of the messages of each side.
    static let places: [(side: Side, files: [String], direction: String)] = [
        (.client, client, "client to broker"), (.broker, client, "broker to client"),
        (.worker, worker, "worker to broker"), (.pool, worker, "broker to worker"),
    ]

    /// One message of an example.
    struct Example {
        /// `C` for a client, `W` for a worker, `S` for the broker.
        let speaker: Character
        let head: [UInt8]

        var verb: String { String(decoding: head.prefix { $0 > 0x20 }, as: UTF8.self) }
    }

    /// Lines of each document.
    private let documents: [[Substring]]

    init(_ name: String, in folder: String = "protocols") throws {
        try self.init([name], in: folder)
    }

    init(_ names: [String], in folder: String = "protocols") throws {
        documents = try names.map {
            try DocumentFolder.text("\(folder)/\($0)").split(separator: "\n", omittingEmptySubsequences: false)
        }
    }

    /// Returns the lines below a heading in each document, up to the next heading of its level or above; empty without
    /// such a heading.
    func section(_ heading: String) -> [Substring] {
        let level = heading.prefix { $0 == "#" }.count
        return documents.flatMap { lines in
            guard let start = lines.firstIndex(of: Substring(heading)) else { return [Substring]() }
            return Array(lines[(start + 1)...].prefix { !$0.hasPrefix("#") || $0.prefix { $0 == "#" }.count > level })
        }
    }

    /// Returns the verbs in the grammar of one direction: rules that begin with a word in capitals.
    func verbs(_ direction: String) -> Set<String> {
        Set(
            section("### Messages, \(direction)").compactMap { line in
                guard let mark = line.range(of: "= %s\"") else { return nil }
                let verb = line[mark.upperBound...].prefix { $0.isUppercase }
                return verb.isEmpty ? nil : String(verb)
            })
    }

    /// Returns the commands of one direction, with the names of their fields in the order of the table. A table below
    /// several verbs is that of each of them, but for the rows whose third cell begins with `in VERB`.
    func commands(_ direction: String) -> [String: [String]] {
        var commands: [String: [String]] = [:]
        var verbs: [String] = []
        for line in section("## Commands, \(direction)") {
            if line.hasPrefix("### ") {
                verbs = line.dropFirst(4).split(separator: ", ").map { String($0) }
                for verb in verbs { commands[verb, default: []] += [] }
            } else if let field = Self.code(line, column: 0) {
                let cells = Self.cells(line)
                let owners = verbs.filter { cells.count == 4 && cells[2].hasPrefix("in \($0)") }
                for verb in owners.isEmpty ? verbs : owners { commands[verb]?.append(field) }
            }
        }
        return commands
    }

    /// Returns the rows of a table of three columns: side, verb, fields in backquotes.
    func triples(_ heading: String) -> [(side: Side, verb: String, fields: [String])] {
        section(heading).compactMap { line in
            let cells = Self.cells(line)
            guard cells.count == 3, let side = Side(rawValue: cells[0].filter { $0 != "`" }) else { return nil }
            return (side, cells[1], cells[2].matches(of: /`([a-z0-9-]+)`/).map { String($0.1) })
        }
    }

    /// Returns the rows of the tables below a heading, by the code in their first column.
    func rows(_ heading: String) -> [String: [String]] {
        var rows: [String: [String]] = [:]
        for line in section(heading) {
            guard let code = Self.code(line, column: 0) else { continue }
            rows[code] = Self.cells(line)
        }
        return rows
    }

    /// Returns the fields marked in one direction as `always` present, or as `always in VERB`, by verb.
    func fieldsAlwaysPresent(_ direction: String) -> [String: Set<String>] {
        var fields: [String: Set<String>] = [:]
        var verbs: [String] = []
        for line in section("## Commands, \(direction)") {
            if line.hasPrefix("### ") {
                verbs = line.dropFirst(4).split(separator: ", ").map { String($0) }
            } else if let field = Self.code(line, column: 0) {
                let cells = Self.cells(line)
                for verb in verbs where cells.count == 4 && ["always", "always in \(verb)"].contains(cells[2]) {
                    fields[verb, default: []].insert(field)
                }
            }
        }
        return fields
    }

    /// Returns the messages of all code blocks marked `ear`, without bodies. A message begins with its speaker and a
    /// colon; its further lines are indented by three spaces. An empty line among these begins the HTTP fields.
    func examples() -> [Example] {
        var examples: [(speaker: Character, lines: [Substring])] = []
        var isInside = false
        var isInBody = false
        for line in documents.joined() {
            if line.hasPrefix("```") {
                isInside = line == "```ear"
            } else if isInside, let speaker = line.first, speaker != " " {
                isInBody = false
                examples.append((speaker, [line.dropFirst(3)]))
            } else if isInside, let last = examples.indices.last {
                isInBody = isInBody || line.hasPrefix("   + ")
                if !isInBody { examples[last].lines.append(line.dropFirst(3)) }
            }
        }
        return examples.map {
            Example(speaker: $0.speaker, head: Array(($0.lines.joined(separator: "\n") + "\n").utf8))
        }
    }

    /// Returns the cells of a table's row.
    private static func cells(_ line: Substring) -> [String] {
        line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
    }

    /// Returns the text of a cell that is entirely in backquotes; nil for other cells.
    private static func code(_ line: Substring, column: Int) -> String? {
        guard line.hasPrefix("| `") else { return nil }
        let cell = line.split(separator: "|")[column].trimmingCharacters(in: .whitespaces)
        guard cell.count > 2, cell.hasPrefix("`"), cell.hasSuffix("`") else { return nil }
        return String(cell.dropFirst().dropLast())
    }
}
