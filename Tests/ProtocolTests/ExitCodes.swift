import Testing

/// Exit codes of the command in ascending order, each with its meaning. The command is not a library, so its source is read.
enum ExitCodes {
    struct Row: Equatable {
        let code: Int
        let meaning: String
    }

    /// Rows of the table in `docs/command-line.md`, without backquotes.
    static func ofDocument() throws -> [Row] {
        let lines = try DocumentFolder.text("docs/command-line.md").split(separator: "\n")
        let start = try #require(lines.firstIndex(of: "## Exit codes"))
        return lines[(start + 1)...].prefix { !$0.hasPrefix("## ") }.compactMap { line in
            guard let row = line.wholeMatch(of: /\| (\d+) \| (.+) \|/), let code = Int(row.1) else { return nil }
            return Row(code: code, meaning: row.2.filter { $0 != "`" })
        }
    }

    /// Cases of `ExitStatus` with the text of its `meaning`.
    static func ofProgram() throws -> [Row] {
        let text = try DocumentFolder.text("Sources/earshot/Output/ExitStatus.swift")
        var meanings: [Substring: Substring] = [:]
        for sentence in text.matches(of: /case \.(\w+): "(.+)"/) { meanings[sentence.1] = sentence.2 }
        return try text.matches(of: /case (\w+) = (\d+)/).map { status in
            Row(code: try #require(Int(status.2)), meaning: String(try #require(meanings[status.1])))
        }
    }
}
