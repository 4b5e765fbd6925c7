import Foundation

/// A document of this checkout, with the texts that a reader may run as commands.
struct DocumentText {
    /// Text in the shell's language.
    struct Piece {
        /// Number of its first line, from 1.
        let line: Int
        let text: String
        let form: Form
    }

    enum Form {
        /// Block in the shell's language.
        case shell
        /// Block without a language, such as a configuration or a session.
        case plain
        /// Code span in a sentence, which may name a command without its arguments.
        case span
    }

    /// Path from the root of the package.
    let path: String
    private(set) var pieces: [Piece] = []

    init(path: String, text: String) {
        self.path = path
        var block: (line: Int, language: Substring, lines: [Substring])?
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let trimmed = line.drop { $0 == " " }
            if trimmed.hasPrefix("```") {
                if let ended = block { addBlock(ended) }
                block = block == nil ? (index + 2, trimmed.dropFirst(3), []) : nil
            } else if block != nil {
                block?.lines.append(trimmed)
            } else {
                let spans = line.split(separator: "`", omittingEmptySubsequences: false).enumerated().filter {
                    $0.offset % 2 == 1
                }
                pieces += spans.map { Piece(line: index + 1, text: String($0.element), form: .span) }
            }
        }
    }

    private mutating func addBlock(_ block: (line: Int, language: Substring, lines: [Substring])) {
        let text: [Substring]
        switch block.language {
        case "sh", "": text = block.lines
        // Five fields of time and the user precede the command.
        case "cron":
            text = block.lines.map { $0.hasPrefix("#") ? $0 : $0.split(separator: " ", maxSplits: 6).last ?? $0 }
        case "ini":
            text = block.lines.filter { $0.hasPrefix("Exec") }.compactMap {
                $0.split(separator: "=", maxSplits: 1).last
            }
        default: return
        }
        pieces.append(
            Piece(line: block.line, text: text.joined(separator: "\n"), form: block.language.isEmpty ? .plain : .shell))
    }

    /// All documents with commands of the program.
    static func all() throws -> [DocumentText] {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let folders = ["docs", "protocols", "examples", "Sources/EarshotClient/EarshotClient.docc"]
        let below = folders.flatMap { folder in
            (FileManager.default.enumerator(atPath: root.appending(path: folder).path)?.allObjects ?? [])
                .compactMap { $0 as? String }.filter { $0.hasSuffix(".md") && !$0.contains(".build/") }.map {
                    "\(folder)/\($0)"
                }
        }
        return try (["README.md", "CONTRIBUTING.md"] + below.sorted()).map { path in
            DocumentText(path: path, text: try String(contentsOf: root.appending(path: path), encoding: .utf8))
        }
    }
}
