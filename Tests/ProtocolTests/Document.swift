import Foundation

/// A document of `protocols/`, as far as a test reads it: grammars, the commands' sections and tables.
///
/// Grammar and commands are told per side under headings that end in `client to broker` and the like.
struct Document {
    /// Where the messages of each side stand in the documents.
    static let places: [(side: Side, file: String, direction: String)] = [
        (.client, "1-CLIENT.md", "client to broker"), (.broker, "1-CLIENT.md", "broker to client"),
        (.worker, "2-WORKER.md", "worker to broker"), (.pool, "2-WORKER.md", "broker to worker"),
    ]

    private let lines: [Substring]

    init(_ name: String) throws {
        lines = try Checkout.text("protocols/\(name)").split(separator: "\n", omittingEmptySubsequences: false)
    }

    /// The lines below a heading, up to the next one of its level or above; empty if there is no such heading.
    func section(_ heading: String) -> [Substring] {
        guard let start = lines.firstIndex(of: Substring(heading)) else { return [] }
        let level = heading.prefix { $0 == "#" }.count
        return Array(lines[(start + 1)...].prefix { !$0.hasPrefix("#") || $0.prefix { $0 == "#" }.count > level })
    }

    /// The verbs of the grammar of one direction: rules that begin with a word in capitals.
    func verbs(_ direction: String) -> Set<String> {
        Set(
            section("### Messages, \(direction)").compactMap { line in
                guard let mark = line.range(of: "= %s\"") else { return nil }
                let verb = line[mark.upperBound...].prefix { $0.isUppercase }
                return verb.isEmpty ? nil : String(verb)
            })
    }

    /// The commands of one direction, with the names of their fields in the order of the table.
    func commands(_ direction: String) -> [String: [String]] {
        var commands: [String: [String]] = [:]
        var verbs: [String] = []
        for line in section("## Commands, \(direction)") {
            if line.hasPrefix("### ") {
                verbs = line.dropFirst(4).split(separator: ", ").map { String($0) }
                for verb in verbs { commands[verb] = [] }
            } else if let field = Self.code(line, column: 0) {
                for verb in verbs { commands[verb]?.append(field) }
            }
        }
        return commands
    }

    /// The rows of a table with three columns, of which each cell holds its words in backquotes or alone.
    func triples(_ heading: String) -> [(side: Side, verb: String, fields: [String])] {
        section(heading).compactMap { line in
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard cells.count == 3, let side = Side(rawValue: cells[0].filter { $0 != "`" }) else { return nil }
            return (side, cells[1], cells[2].matches(of: /`([a-z0-9-]+)`/).map { String($0.1) })
        }
    }

    /// The rows of the table below a heading, by the code in their first column.
    func rows(_ heading: String) -> [String: [String]] {
        var rows: [String: [String]] = [:]
        for line in section(heading) {
            guard let code = Self.code(line, column: 0) else { continue }
            rows[code] = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        return rows
    }

    /// What stands in backquotes, alone, in a column of a table's row.
    private static func code(_ line: Substring, column: Int) -> String? {
        guard line.hasPrefix("| `") else { return nil }
        let cell = line.split(separator: "|")[column].trimmingCharacters(in: .whitespaces)
        guard cell.count > 2, cell.hasPrefix("`"), cell.hasSuffix("`") else { return nil }
        return String(cell.dropFirst().dropLast())
    }
}
