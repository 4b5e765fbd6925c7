/// Simple commands of a text in the shell's language, as far as the documents use it: quotes, escapes, continued lines, comments,
/// operators, redirections, here-documents and command substitutions. Variables stay as they are.
struct ShellText {
    /// The words of each command, without redirections. Commands of a substitution come before that with the substitution.
    private(set) var commands: [[String]] = []

    private var rest: Substring
    private var words: [String] = []
    /// The word that is being read; nil between words.
    private var word: String?
    /// Whether the next word is the target of a redirection.
    private var isTarget = false
    /// End of the here-document that begins with the next line.
    private var hereEnd: String?

    init(_ text: String) {
        rest = Substring(text)
        while let character = rest.popFirst() { read(character) }
        endCommand()
    }

    private mutating func read(_ character: Character) {
        switch character {
        case "\\":
            let next = rest.popFirst()
            if next != "\n" { append(next.map(String.init) ?? "") }
        case "'": append(upTo("'"))
        case "\"": readQuoted()
        case "$" where rest.first == "(": readSubstitution()
        case "#" where word == nil: rest = rest.drop { $0 != "\n" }
        case " ", "\t": endWord()
        case "\n":
            endCommand()
            skipHereDocument()
        case ";", "|", "&", "(", ")": endCommand()
        case "<", ">": readRedirection(character)
        default: append(String(character))
        }
    }

    private mutating func append(_ text: String) { word = (word ?? "") + text }

    private mutating func upTo(_ end: Character) -> String {
        let text = rest.prefix { $0 != end }
        rest = rest.dropFirst(text.count + 1)
        return String(text)
    }

    private mutating func readQuoted() {
        append("")
        while let character = rest.popFirst(), character != "\"" {
            switch character {
            case "\\": append(rest.popFirst().map { $0 == "\n" ? "" : String($0) } ?? "")
            case "$" where rest.first == "(": readSubstitution()
            default: append(String(character))
            }
        }
    }

    private mutating func readSubstitution() {
        var depth = 0
        let inner = rest.prefix { character in
            if character == "(" { depth += 1 }
            if character == ")" { depth -= 1 }
            return depth > 0
        }
        rest = rest.dropFirst(inner.count + 1)
        commands += ShellText(String(inner.dropFirst())).commands
        append("$()")
    }

    private mutating func readRedirection(_ character: Character) {
        // A number before it is that of a descriptor.
        if word?.allSatisfy(\.isNumber) == true { word = nil }
        endWord()
        let isHere = character == "<" && rest.first == "<"
        rest = rest.drop { "<>&".contains($0) }
        rest = rest.drop { $0 == " " }
        if isHere {
            hereEnd = rest.prefix { !" \n;|&".contains($0) }.filter { !"'\"\\-".contains($0) }
        }
        isTarget = rest.first != "("
    }

    private mutating func skipHereDocument() {
        guard let end = hereEnd else { return }
        hereEnd = nil
        while !rest.isEmpty, upTo("\n") != end {}
    }

    private mutating func endWord() {
        guard let word else { return }
        self.word = nil
        if isTarget { isTarget = false } else { words.append(word) }
    }

    private mutating func endCommand() {
        endWord()
        isTarget = false
        if !words.isEmpty { commands.append(words) }
        words = []
    }
}
