import Foundation

/// One text file of the package as lines, with its code separated from comments and literals.
struct SourceFile {
    /// Path from the package's root.
    let path: String
    /// Lines without their line feeds.
    let lines: [String]
    /// The same lines without comments and without the contents of string literals.
    let code: [String]
    /// The comments of the same lines, without their markers; empty for a line without a comment.
    let comments: [String]

    init(path: String, text: String) {
        self.path = path
        lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        (code, comments) = Self.separated(lines)
    }

    /// The folder below `Sources` or `Tests` that the file is in; nil for any other file.
    var target: String? {
        let parts = path.split(separator: "/")
        guard parts.count > 2, parts[0] == "Sources" || parts[0] == "Tests" else { return nil }
        return String(parts[1])
    }

    /// The modules it imports, each with its line number from 1.
    var imports: [(module: String, line: Int)] {
        code.enumerated().compactMap { index, line in
            let words = line.split(whereSeparator: \.isWhitespace).map(String.init)
            guard let keyword = words.firstIndex(of: "import"), keyword + 1 < words.count,
                words[..<keyword].allSatisfy({ $0.hasPrefix("@") || Self.accessLevels.contains($0) })
            else { return nil }
            let kinds: Set = ["struct", "class", "enum", "protocol", "typealias", "func", "let", "var"]
            let name = kinds.contains(words[keyword + 1]) ? words.last! : words[keyword + 1]
            return (String(name.prefix { $0 != "." && $0 != ";" }), index + 1)
        }
    }

    /// Whether the line above the one with this index, attributes aside, is or ends a comment.
    func hasCommentAbove(_ index: Int) -> Bool {
        var above = index - 1
        while above >= 0, lines[above].trimmed.hasPrefix("@") {
            above -= 1
        }
        guard above >= 0 else { return false }
        return lines[above].trimmed.hasPrefix("//") || lines[above].trimmed.hasSuffix("*/")
    }

    private static let accessLevels: Set = ["public", "package", "internal", "fileprivate", "private"]

    private static func separated(_ lines: [String]) -> (code: [String], comments: [String]) {
        var inComment = false
        var inMultilineLiteral = false
        var comments: [String] = []
        let code = lines.map { line in
            var kept = ""
            var comment = ""
            var inLiteral = false
            var rest = Substring(line)
            while let character = rest.first {
                if inComment {
                    inComment = !rest.hasPrefix("*/")
                    if inComment { comment.append(character) }
                    rest.removeFirst(inComment ? 1 : 2)
                } else if rest.hasPrefix("\"\"\"") {
                    inMultilineLiteral.toggle()
                    rest.removeFirst(3)
                } else if inMultilineLiteral {
                    rest.removeFirst()
                } else if inLiteral {
                    inLiteral = character != "\""
                    if !inLiteral { kept.append(character) }
                    rest.removeFirst(character == "\\" ? min(2, rest.count) : 1)
                } else if rest.hasPrefix("//") {
                    comment += rest.drop { $0 == "/" }
                    break
                } else if rest.hasPrefix("/*") {
                    inComment = true
                    rest.removeFirst(2)
                } else {
                    inLiteral = character == "\""
                    kept.append(character)
                    rest.removeFirst()
                }
            }
            comment = comment.trimmed
            comments.append(comment.hasPrefix("* ") ? String(comment.dropFirst(2)) : comment)
            return kept
        }
        return (code, comments)
    }
}

extension StringProtocol {
    /// Without the white space at both ends.
    var trimmed: String { trimmingCharacters(in: .whitespaces) }
}
