import Testing

/// Exit codes of the command in ascending order, each with what it means. The command is no library: its source is
/// read.
enum ExitCodes {
    struct Row: Equatable {
        let code: Int
        let meaning: String
    }

    /// The rows of the README's table, without backquotes.
    static func ofReadme() throws -> [Row] {
        let lines = try Checkout.text("README.md").split(separator: "\n")
        let start = try #require(lines.firstIndex(of: "## Exit codes"))
        return lines[(start + 1)...].prefix { !$0.hasPrefix("## ") }.compactMap { line in
            guard let row = line.wholeMatch(of: /\| (\d+) \| (.+) \|/), let code = Int(row.1) else { return nil }
            return Row(code: code, meaning: row.2.filter { $0 != "`" })
        }
    }

    /// The cases of `ExitStatus` with what its `meaning` says of them.
    static func ofProgram() throws -> [Row] {
        let text = try Checkout.text("Sources/earshot/Output/ExitStatus.swift")
        var meanings: [Substring: Substring] = [:]
        for sentence in text.matches(of: /case \.(\w+): "(.+)"/) { meanings[sentence.1] = sentence.2 }
        return try text.matches(of: /case (\w+) = (\d+)/).map { status in
            Row(code: try #require(Int(status.2)), meaning: String(try #require(meanings[status.1])))
        }
    }
}
