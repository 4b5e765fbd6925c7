internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Credentials of hosts, from a file in the format of netrc(5).
///
/// A `machine` entry holds `login` and `password`; `account` and macros are ignored. `default` stands for all hosts
/// without an entry. The first entry of a host counts. Words may be quoted. A line that begins
/// with `#` is a comment.
struct Netrc {
    /// Maximum size of the file, in bytes: thousands of entries.
    private static let mostBytes = 1 << 20

    private var entries: [String: BasicCredentials] = [:]
    private var others: BasicCredentials?

    /// Path of the user's file: the variable `NETRC`, else `~/.netrc`. Nil without a home directory.
    static var usualPath: String? {
        Environment.value("NETRC") ?? Environment.value("HOME").map { $0 + "/.netrc" }
    }

    /// Reads the file at `path`.
    static func read(_ path: String) throws(Complaint) -> Netrc {
        let bytes = try InputFile.read(path, atMost: mostBytes)
        guard let netrc = Netrc(ByteText.text(of: bytes)) else {
            throw Complaint(
                .noInput, "cannot parse \(path); write lines such as 'machine HOST login USER password WORD'")
        }
        return netrc
    }

    /// Nil for malformed text. The error has no detail, because any word may be a password.
    init?(_ text: String) {
        guard let words = Self.words(of: text) else { return nil }
        var rest = words[...]
        while let keyword = rest.popFirst() {
            let host: String?
            switch keyword {
            case "machine":
                guard let name = rest.popFirst() else { return nil }
                host = name.lowercased()
            case "default": host = nil
            default: return nil
            }
            var (user, password) = ("", "")
            while let keyword = rest.first, ["login", "password", "account"].contains(keyword) {
                guard rest.count > 1 else { return nil }
                let value = rest[rest.startIndex + 1]
                rest = rest.dropFirst(2)
                if keyword == "login" { user = value }
                if keyword == "password" { password = value }
            }
            let entry = BasicCredentials(user: user, password: password)
            if let host {
                if entries[host] == nil { entries[host] = entry }
            } else if others == nil {
                others = entry
            }
        }
    }

    /// Returns the credentials for a URL: those of its host, else the default ones. Nil for a URL with user
    /// information, and for an entry without a login.
    func credentials(for url: String) -> BasicCredentials? {
        guard let url = try? FetchURL(url), url.isHTTP, !url.hasUserinfo else { return nil }
        let host = url.host.hasPrefix("[") ? url.host.dropFirst().dropLast() : url.host
        guard let found = entries[String(host)] ?? others, !found.user.isEmpty else { return nil }
        return found
    }

    /// Adds the credentials for the URL of `fetch` to its header fields, unless it has others.
    func authorize(_ fetch: inout Fetch) {
        guard let credentials = credentials(for: fetch.url) else { return }
        let hasOthers = fetch.httpFields.split(separator: UInt8(ascii: "\n")).contains { line in
            String(decoding: line, as: UTF8.self).lowercased().hasPrefix("authorization:")
        }
        if !hasOthers { fetch.add(field: credentials.field) }
    }

    /// Splits the text into words, without comments and macros. Nil for a quotation without end, and for a control
    /// character in a word.
    private static func words(of text: String) -> [String]? {
        var words: [String] = []
        var isMacro = false
        for line in text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false) {
            let line = Substring(line.last == "\r" ? line.dropLast() : line)
            // A macro ends at an empty line.
            if isMacro {
                isMacro = !line.isEmpty
                continue
            }
            var rest = line.drop { $0 == " " || $0 == "\t" }
            if rest.first == "#" { continue }
            while let first = rest.first {
                guard let word = first == "\"" ? quoted(&rest) : plain(&rest) else { return nil }
                guard !word.unicodeScalars.contains(where: { $0.value < 0x20 || $0.value == 0x7f }) else { return nil }
                if word == "macdef" {
                    isMacro = true
                    break
                }
                words.append(word)
                rest = rest.drop { $0 == " " || $0 == "\t" }
            }
        }
        return words
    }

    private static func plain(_ rest: inout Substring) -> String? {
        let word = rest.prefix { $0 != " " && $0 != "\t" }
        rest = rest[word.endIndex...]
        return String(word)
    }

    /// Takes a quoted word, in which a backslash escapes the next character.
    private static func quoted(_ rest: inout Substring) -> String? {
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
