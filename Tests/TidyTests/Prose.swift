/// Natural-language text of one file, as words: the comments of a source file, or the paragraphs of a document.
///
/// Code does not count: fenced blocks are dropped, and each span between backticks becomes the word `code`.
struct Prose {
    /// One word in lower case, or a boundary that no phrase crosses.
    enum Token: Equatable {
        case word(String)
        /// Punctuation inside a sentence.
        case pause
        /// End of a sentence, a list item or a paragraph.
        case stop
    }

    /// Path from the package's root.
    let path: String
    /// Whether the file is a Markdown document.
    let isDocument: Bool
    /// Tokens in order, each with its line number from 1.
    let tokens: [(token: Token, line: Int)]

    init(_ file: SourceFile) {
        path = file.path
        isDocument = file.path.hasSuffix(".md")
        let lines =
            if isDocument {
                Self.paragraphs(file.lines)
            } else if file.path.hasSuffix(".py") {
                Self.pythonComments(file.lines)
            } else {
                file.comments
            }
        tokens = Self.tokens(lines)
    }

    private init(path: String, tokens: [(token: Token, line: Int)]) {
        self.path = path
        isDocument = false
        self.tokens = tokens
    }

    /// The prose of a Swift file's string literals.
    static func messages(of file: SourceFile) -> Prose {
        var reader = LiteralReader()
        return Prose(path: file.path, tokens: tokens(file.lines.map { reader.texts(of: $0) }))
    }

    private static func tokens(_ lines: [String]) -> [(token: Token, line: Int)] {
        var reader = ProseReader()
        for (index, line) in lines.enumerated() {
            reader.read(line, number: index + 1)
        }
        return reader.tokens
    }

    /// Number of words.
    var wordCount: Int {
        tokens.count { if case .word = $0.token { true } else { false } }
    }

    /// Line numbers at which one of `words` stands.
    func lines(with words: Set<String>) -> [Int] {
        tokens.compactMap { token, line in
            if case .word(let word) = token, words.contains(word) { line } else { nil }
        }
    }

    /// Returns whether `phrase` begins at the token `start`. A phrase may span lines but not sentences.
    func has(_ phrase: [String], at start: Int) -> Bool {
        tokens.count - start >= phrase.count
            && phrase.indices.allSatisfy { tokens[start + $0].token == .word(phrase[$0]) }
    }

    /// Mean number of words in a sentence; 0 without a sentence.
    var meanSentenceLength: Double {
        var sentences = 0
        var isInSentence = false
        for (token, _) in tokens {
            switch token {
            case .word:
                sentences += isInSentence ? 0 : 1
                isInSentence = true
            case .pause: break
            case .stop: isInSentence = false
            }
        }
        return sentences == 0 ? 0 : Double(wordCount) / Double(sentences)
    }

    /// A document's lines. Headings and rows of tables are blank, because they are not sentences.
    private static func paragraphs(_ lines: [String]) -> [String] {
        lines.map { line in
            let text = line.trimmed
            return text.hasPrefix("#") || text.hasPrefix("|") ? "" : text
        }
    }

    /// Comments and docstrings by line. A docstring is a literal in triple quotation marks that begins its line.
    private static func pythonComments(_ lines: [String]) -> [String] {
        var isInDocstring = false
        var isInLiteral = false
        return lines.map { line in
            let text = line.trimmed
            let changesState = text.split(separator: "\"\"\"", omittingEmptySubsequences: false).count % 2 == 0
            if isInLiteral {
                isInLiteral = !changesState
                return ""
            }
            if isInDocstring || text.hasPrefix("\"\"\"") || text.hasPrefix("r\"\"\"") {
                isInDocstring = isInDocstring != changesState
                return text.replacing("\"\"\"", with: "")
            }
            isInLiteral = changesState
            if changesState || text.hasPrefix("#!") { return "" }
            if text.hasPrefix("#") { return String(text.drop { $0 == "#" }).trimmed }
            return line.firstRange(of: "  # ").map { String(line[$0.upperBound...]) } ?? ""
        }
    }
}
