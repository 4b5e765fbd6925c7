/// Rules of plain English that a program can check, for comments and documents.
///
/// Each function returns one line per violation, as `path:line: problem`.
enum Wording {
    /// A set of words with a common limit per 1,000 words of prose.
    ///
    /// A single file may always contain one of them, so that a rare exact use does not depend on the length of its
    /// file. The limit in total has no such allowance per file.
    struct Limit {
        let words: Set<String>
        let perThousand: Double

        /// Highest permitted count in `total` words. At least 1.
        func allowance(for total: Int) -> Int { max(1, Int(perThousand * Double(total) / 1000)) }
    }

    /// Clauses that begin with these words hide the noun that they stand for.
    static let limits = [
        Limit(words: ["what", "what's"], perThousand: 2),
        Limit(words: ["who", "who's"], perThousand: 0.3),
        Limit(words: ["nobody"], perThousand: 0.3),
        Limit(words: ["whatever", "whoever"], perThousand: 0.3),
    ]

    /// Phrases for which a standard term exists: notify, release, disconnect, dedicated, cancel, subscriber and others.
    static let idioms = [
        "told of", "is told", "are told", "was told", "were told", "be told", "let go", "lets go", "put out",
        "puts out",
        "of one's own", "wants any more", "nobody wants", "nobody's", "somebody's", "nobody else", "who asked",
        "whoever asked", "for people", "takes the place of", "in vain", "anew", "knows nothing of", "hears of",
        "heard of", "hear of", "comes of", "that are too many", "was said", "is said", "has to do with",
        "have to do with", "for ever", "word of", "a use for", "has no use", "of no use", "says so", "said so",
        "is worth", "is owed", "are owed", "are stronger than", "gone quiet", "its say", "looked at", "for nothing",
        "is to be", "are to be", "taken for", "the like", "passed over", "given up", "told apart",
    ]

    /// Mean words per sentence of a document.
    static let meanSentenceLength = 20.0

    /// Whether the rules apply to a file. They do not apply to the list of forbidden phrases and its tests.
    static func applies(to path: String) -> Bool { !path.hasPrefix("Tests/TidyTests/Wording") }

    /// All violations in one file.
    static func violations(_ prose: Prose) -> [String] {
        tooFrequent(prose) + forbiddenPhrases(prose) + longSentences(prose)
    }

    /// Path prefixes of Swift files whose literals a user reads: help, errors, reasons.
    static let messages = [
        "Sources/earshot/", "Sources/EarshotQueries/", "Sources/EarshotCore/Settings/",
        "Sources/EarshotHTTP/Retries/FailureCode.swift", "Sources/EarshotWire/Fields/Fetch.swift",
    ]

    /// All violations in the literals of one file. Messages are short, so they contain none of the limited words.
    static func messageViolations(_ prose: Prose) -> [String] {
        limits.flatMap { limit in
            prose.lines(with: limit.words).map { "\(prose.path):\($0): \(limit.name) in a message; write the noun" }
        } + forbiddenPhrases(prose)
    }

    /// Words above their limit in one file.
    static func tooFrequent(_ prose: Prose) -> [String] {
        limits.flatMap { limit in
            let found = prose.lines(with: limit.words)
            let allowance = limit.allowance(for: prose.wordCount)
            return found.count <= allowance
                ? []
                : found.map {
                    "\(prose.path):\($0): \(limit.name): \(found.count) in this file, more than \(allowance); "
                        + "write the noun"
                }
        }
    }

    /// Words above their limit in all of `texts` together.
    static func tooFrequent(in texts: [Prose]) -> [String] {
        let total = texts.reduce(0) { $0 + $1.wordCount }
        return limits.compactMap { limit in
            let count = texts.reduce(0) { $0 + $1.lines(with: limit.words).count }
            let allowance = limit.allowance(for: total)
            return count <= allowance
                ? nil : "\(limit.name): \(count) in \(total) words, more than \(allowance); write the nouns"
        }
    }

    /// Phrases of `idioms`.
    static func forbiddenPhrases(_ prose: Prose) -> [String] {
        prose.tokens.indices.flatMap { start -> [String] in
            guard case .word(let word) = prose.tokens[start].token, let phrases = idiomsByFirstWord[word] else {
                return []
            }
            return phrases.filter { prose.has($0, at: start) }.map { phrase in
                "\(prose.path):\(prose.tokens[start].line): \"\(phrase.joined(separator: " "))\"; write the standard term"
            }
        }
    }

    private static let idiomsByFirstWord = Dictionary(
        grouping: idioms.map { $0.split(separator: " ").map(String.init) }
    ) { $0[0] }

    /// A document whose sentences are too long on average.
    static func longSentences(_ prose: Prose) -> [String] {
        guard prose.isDocument, prose.meanSentenceLength > meanSentenceLength else { return [] }
        let mean = (prose.meanSentenceLength * 10).rounded() / 10
        return ["\(prose.path):1: \(mean) words in a mean sentence, more than \(meanSentenceLength)"]
    }
}

extension Wording.Limit {
    /// The words in order, for messages.
    var name: String { words.sorted().joined(separator: ", ") }
}
