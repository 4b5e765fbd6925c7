internal import ArgumentParser
internal import EarshotWire

/// Error for a word on the command line that names no command or option.
struct UnknownArgument: Error {
    enum Kind: String {
        case command
        case option
    }

    private let kind: Kind
    private let word: String
    /// The most similar existing name.
    private let suggestion: String?
    /// Command whose help lists the existing names; empty for the program itself.
    private let commandPath: [String]

    init(_ kind: Kind, _ word: String, knownNames names: [String], commandPath path: [String]) {
        self.kind = kind
        self.word = word
        self.commandPath = path
        // Permits one difference for each three letters.
        let most = max(1, word.drop { $0 == "-" }.count / 3)
        let known = Self.curlNames[word].flatMap { names.contains($0) ? $0 : nil }
        let candidates = names.map { ($0, Self.editDistance($0, word)) }.filter { $0.1 <= most }
        suggestion = known ?? candidates.min { ($0.1, $0.0) < ($1.1, $1.0) }?.0
    }

    /// Options of curl with another name here.
    private static let curlNames = [
        "--cacert": "--ca-file", "--continue-at": "--continue", "--cookie": "--cookie-file",
        "--max-filesize": "--max-bytes", "--max-time": "--deadline", "--netrc-optional": "--netrc",
        "--output-dir": "--directory", "--request": "--method", "--retry": "--retries", "--silent": "--quiet",
        "--time-cond": "--timestamping",
    ]

    /// The message, in the form of the argument parser.
    var message: String {
        let command = (["earshot"] + commandPath).joined(separator: " ")
        var text = "Error: Unknown \(kind.rawValue) '\(word)'."
        if let suggestion { text += " Did you mean '\(suggestion)'?" }
        return text + "\n  See '\(command) --help' for more information."
    }

    /// Levenshtein distance: insertions, deletions and replacements that turn one name into the other.
    private static func editDistance(_ one: String, _ other: String) -> Int {
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

/// Error for a repeated option with a single value. The parser would use the last value and drop the others silently.
/// That is right only for options that select the bus and for those of `serve`: later values replace those of an alias
/// or a unit.
struct RepeatedOption: Error {
    /// The last name of the option on the command line, with dashes.
    let name: String
    /// The command, without the name of the program.
    let commandPath: [String]

    /// The message, in the form of the argument parser.
    var message: String {
        let command = (["earshot"] + commandPath).joined(separator: " ")
        return "Error: \(name) is given more than once; give it once.\n  See '\(command) --help' for more information."
    }

    /// Long names of the options that have a short name. `-o` stands for `--out`, too.
    static let longNames = [
        "-i": "--input", "-o": "--output", "-d": "--directory", "-D": "--dump-header", "-j": "--jobs", "-X": "--method",
        "-H": "--header", "-A": "--user-agent", "-u": "--user", "-b": "--cookie-file", "-c": "--cookie-jar",
        "--out": "--output",
    ]

    /// Options of a bus: the last value counts.
    static let repeatableBusOptions: Set = ["--bus", "--bus-key", "--server-key", "--runtime"]

    /// Whether any word may repeat an option. This costs little, unlike the shape of the program, which then decides.
    static func mayOccur(in arguments: ArraySlice<String>) -> Bool {
        guard arguments.first != "serve" else { return false }
        var names: Set<String> = []
        for word in arguments.prefix(while: { $0 != "--" }) where word.hasPrefix("-") && word != "-" {
            let name = String(word.prefix { $0 != "=" })
            if !repeatableBusOptions.contains(name), !names.insert(longNames[name] ?? name).inserted { return true }
        }
        return false
    }
}

/// Forms of values, for the parser's messages about a value that it refuses without a reason.
enum ValueFormatHint {
    /// Returns the message of the argument parser, with the wanted form after its first line.
    ///
    /// - Parameter message: text that begins with `Error: The value 'x' is invalid for '--option <placeholder>'`.
    static func messageAddingFormat(_ message: String) -> String {
        let end = message.firstIndex(of: "\n") ?? message.endIndex
        let line = message[..<end]
        guard line.hasPrefix("Error: The value '"), line.hasSuffix(">'"), let start = line.lastIndex(of: "<"),
            let name = line.firstRange(of: "' is invalid for '"), name.upperBound <= start
        else { return message }
        let placeholder = String(line[line.index(after: start)...].dropLast(2))
        let option = line[name.upperBound..<start].filter { $0 != " " }
        guard let form = formatsByOption[option] ?? formatsByOption["<\(placeholder)>"] else { return message }
        return "\(line); give \(form)\(message[end...])"
    }

    /// Forms by option, or by placeholder in angle brackets.
    private static let formatsByOption = [
        "--checksum": "sha256: and 64 hexadecimal digits",
        "--handler": handlerFormat,
        "<handler>": handlerFormat,
        "<id>": identifierFormat,
        "<request>": identifierFormat,
        "<n>": "a whole number",
        "<seconds>": "a number of seconds",
        "<slots>": "a whole number",
    ]

    private static let handlerFormat =
        "1 to \(WireLimits.handlerBytes) visible ASCII characters, with parts between slashes, such as gallery/1"
    private static let identifierFormat = "1 to \(WireLimits.identifierBytes) visible ASCII characters"
}
