internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Credentials of hosts, from a file in the format of netrc(5).
///
/// A `machine` entry holds `login` and `password`; macros and unknown words are ignored, as in curl. `default` stands
/// for all hosts without an entry. The first entry of a host counts; for a URL with a user, the first entry of that
/// user. Words may be quoted. In place of a keyword, a word that begins with `#` begins a comment.
struct Netrc {
    /// Maximum size of the file, in bytes: thousands of entries.
    private static let maximumFileBytes = 1 << 20

    private var credentialsByHost: [String: [BasicCredentials]] = [:]
    private var defaultCredentials: [BasicCredentials] = []

    /// Path of the user's file: the variable `NETRC`, else `~/.netrc`. Nil without a home directory.
    static var defaultPath: String? {
        Environment.value("NETRC") ?? Environment.value("HOME").map { $0 + "/.netrc" }
    }

    /// Reads the file at `path`.
    static func read(_ path: String) throws(CommandError) -> Netrc {
        let bytes = try InputFile.read(path, atMost: maximumFileBytes)
        guard let netrc = Netrc(ByteText.text(of: InputFile.withoutByteOrderMark(bytes))) else {
            throw CommandError(
                .noInput,
                "cannot parse \(path): a control character, or a quotation without end; write lines such as "
                    + "'machine HOST login USER password WORD'")
        }
        return netrc
    }

    /// Nil for malformed text. The error has no detail, because any word may be a password.
    init?(_ text: String) {
        guard let words = Self.tokens(of: text) else { return nil }
        var rest = words[...]
        var (host, user, password): (String?, String, String) = (nil, "", "")
        var isInEntry = false
        func finish() {
            guard isInEntry else { return }
            let entry = BasicCredentials(user: user, password: password)
            if let host { credentialsByHost[host, default: []].append(entry) } else { defaultCredentials.append(entry) }
        }
        while let word = rest.popFirst() {
            switch word.lowercased() {
            case "machine", "default":
                finish()
                (user, password) = ("", "")
                host = word.lowercased() == "machine" ? rest.popFirst()?.lowercased() ?? "" : nil
                isInEntry = true
            case "login": user = rest.popFirst() ?? user
            case "password": password = rest.popFirst() ?? password
            case "account": _ = rest.popFirst()
            default: break
            }
        }
        finish()
    }

    /// Returns the credentials for a URL: those of its host, else the default ones. Nil for an entry without a login.
    /// A URL with a user alone gets the entry of that user; nil for one with a password.
    func credentials(for url: String) -> BasicCredentials? {
        guard let url = try? FetchURL(url), url.isHTTP else { return nil }
        let host = url.host.hasPrefix("[") ? url.host.dropFirst().dropLast() : url.host
        let found = credentialsByHost[String(host)] ?? defaultCredentials
        guard let userinfo = url.userinfo else { return found.first.flatMap { $0.user.isEmpty ? nil : $0 } }
        guard !userinfo.contains(":") else { return nil }
        let user = SafeFileNames.percentDecoded(userinfo) ?? String(userinfo)
        return found.first { $0.user == user }
    }

    /// Adds the credentials for the URL of `fetch` to its header fields, unless it has others.
    func authorize(_ fetch: inout Fetch) {
        guard let credentials = credentials(for: fetch.url) else { return }
        if !fetch.hasHeaderField("authorization") { fetch.addHeaderField(credentials.authorizationField) }
    }

    /// Splits the text into words, without comments and macros. Nil for a quotation without end, and for a control
    /// character in a word.
    private static func tokens(of text: String) -> [String]? {
        var words: [String] = []
        var isMacro = false
        // Whether the next word is the value of a keyword.
        var isValue = false
        for line in text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false) {
            let line = Substring(line.last == "\r" ? line.dropLast() : line)
            // A macro ends at an empty line.
            if isMacro {
                isMacro = !line.isEmpty
                continue
            }
            var rest = line.drop { $0 == " " || $0 == "\t" }
            while let first = rest.first {
                if first == "#", !isValue { break }
                guard let word = first == "\"" ? parseQuotedWord(&rest) : parsePlainWord(&rest) else { return nil }
                guard !word.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else { return nil }
                if !isValue, word.lowercased() == "macdef" {
                    isMacro = true
                    break
                }
                words.append(word)
                isValue = !isValue && Self.keywords.contains(word.lowercased())
                rest = rest.drop { $0 == " " || $0 == "\t" }
            }
        }
        return words
    }

    /// Keywords with a value.
    private static let keywords: Set = ["machine", "login", "password", "account"]

    private static func parsePlainWord(_ rest: inout Substring) -> String? {
        let word = rest.prefix { $0 != " " && $0 != "\t" }
        rest = rest[word.endIndex...]
        return String(word)
    }

    /// Parses a quoted word, in which a backslash escapes the next character.
    private static func parseQuotedWord(_ rest: inout Substring) -> String? {
        rest.removeFirst()
        var word = ""
        while let character = rest.popFirst() {
            switch character {
            case "\"": return word
            case "\\":
                guard let escaped = rest.popFirst() else { return nil }
                word.append(escaped)
            default: word.append(character)
            }
        }
        return nil
    }
}

/// User name and password for HTTP Basic authentication: RFC 7617.
struct BasicCredentials: Equatable {
    let user: String
    let password: String

    init(user: String, password: String) {
        self.user = user
        self.password = password
    }

    /// Parses `USER:PASSWORD`. The user may be empty, and the password may contain colons.
    init?(_ text: String) {
        guard let colon = text.firstIndex(of: ":") else { return nil }
        self.init(user: String(text[..<colon]), password: String(text[text.index(after: colon)...]))
    }

    /// The header field of the credentials.
    var authorizationField: String { "authorization: Basic " + Base64.encoded(Array("\(user):\(password)".utf8)) }
}
