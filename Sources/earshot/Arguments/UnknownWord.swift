internal import ArgumentParser

/// Error for a word on the command line that names no command or option.
struct UnknownWord: Error {
    enum Kind: String {
        case command
        case option
    }

    private let kind: Kind
    private let word: String
    /// The most similar existing name.
    private let suggestion: String?
    /// Command whose help lists the existing names; empty for the program itself.
    private let path: [String]

    init(_ kind: Kind, _ word: String, among names: [String], _ path: [String]) {
        self.kind = kind
        self.word = word
        self.path = path
        // Permits one difference for each three letters.
        let most = max(1, word.drop { $0 == "-" }.count / 3)
        let known = Self.curlNames[word].flatMap { names.contains($0) ? $0 : nil }
        let candidates = names.map { ($0, Self.distance($0, word)) }.filter { $0.1 <= most }
        suggestion = known ?? candidates.min { ($0.1, $0.0) < ($1.1, $1.0) }?.0
    }

    /// Options of curl with another name here.
    private static let curlNames = [
        "--cacert": "--ca-file", "--continue-at": "--continue", "--cookie": "--cookie-file",
        "--max-filesize": "--max-bytes",
        "--max-time": "--deadline", "--netrc-optional": "--netrc", "--output-dir": "--directory",
        "--request": "--method",
        "--retry": "--retries", "--silent": "--quiet", "--time-cond": "--timestamping",
    ]

    /// The message, in the form of the argument parser.
    var message: String {
        let command = (["earshot"] + path).joined(separator: " ")
        var text = "Error: Unknown \(kind.rawValue) '\(word)'."
        if let suggestion { text += " Did you mean '\(suggestion)'?" }
        return text + "\n  See '\(command) --help' for more information."
    }

    /// Levenshtein distance: insertions, deletions and replacements that turn one name into the other.
    private static func distance(_ one: String, _ other: String) -> Int {
        let other = Array(other)
        var row = Array(0...other.count)
        for (line, character) in one.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for column in other.indices {
                let replaced = diagonal + (other[column] == character ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(replaced, row[column] + 1, diagonal + 1)
            }
        }
        return row[other.count]
    }
}
