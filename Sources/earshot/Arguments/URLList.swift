internal import EarshotLoop
internal import EarshotWire

/// Parser of a list with one URL per line.
///
/// It skips blank lines, lines that begin with `#`, and a byte order mark at the start. An indented line `name=value`
/// is an option of the URL above it.
struct URLList {
    /// Maximum size of a list that is read at once, in bytes: ten million URLs of the usual length.
    private static let maximumListBytes = 1 << 30
    /// Maximum length of a stored line, in bytes. It exceeds the longest valid URL, so a truncated line is still
    /// rejected.
    private static let maximumLineBytes = 64 << 10
    /// Maximum number of stored options of a URL. The last one is an error in place of the option.
    private static let maximumOptionsPerURL = 100

    /// Bytes of the incomplete line.
    private var line: [UInt8] = []
    private var lineNumber = 0
    /// URL of the last complete line that has one. Its options may follow.
    private var lastEntry: ListEntry?

    /// Reads `path` to its end, or standard input for `-`.
    ///
    /// - Throws: `CommandError` if the list cannot be read or is longer than 1 GiB.
    static func read(_ path: String) throws(CommandError) -> [ListEntry] {
        var list = URLList()
        return list.parse(try InputFile.read(path, atMost: maximumListBytes)[...]) + list.finish()
    }

    /// Whether a URL waits for its options.
    var hasOpenEntry: Bool { lastEntry != nil }

    /// Returns the URLs whose options are complete after `bytes`.
    mutating func parse(_ bytes: ArraySlice<UInt8>) -> [ListEntry] {
        var entries: [ListEntry] = []
        var rest = bytes
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            appendToLine(rest[..<end])
            endLine(&entries)
            rest = rest[(end + 1)...]
        }
        appendToLine(rest)
        return entries
    }

    /// Returns the last URL without waiting for options.
    mutating func releaseLastEntry() -> [ListEntry] {
        defer { lastEntry = nil }
        return lastEntry.map { [$0] } ?? []
    }

    /// Returns the last URLs, at the end of the list.
    mutating func finish() -> [ListEntry] {
        var entries: [ListEntry] = []
        endLine(&entries)
        return entries + releaseLastEntry()
    }

    private mutating func endLine(_ entries: inout [ListEntry]) {
        defer { line.removeAll(keepingCapacity: true) }
        lineNumber += 1
        var text = line[...]
        if lineNumber == 1, text.starts(with: InputFile.byteOrderMark) {
            text = text.dropFirst(InputFile.byteOrderMark.count)
        }
        let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
        guard let first = text.firstIndex(where: { !isBlank($0) }), text[first] != UInt8(ascii: "#"),
            let end = text.lastIndex(where: { !isBlank($0) })
        else { return }
        let content = text[first...end]
        if first > text.startIndex, let option = EntryOption(line: content) { return addOption(option, to: &entries) }
        entries += releaseLastEntry()
        lastEntry = ListEntry(url: URLText.text(of: Array(content)))
    }

    private mutating func addOption(_ option: EntryOption, to entries: inout [ListEntry]) {
        guard let count = lastEntry?.options.count else {
            let reason = "the option has no URL above it, or came too late; write a URL and its options at once"
            return entries.append(ListEntry(url: "line \(lineNumber)", options: [.invalid(reason)]))
        }
        guard count < Self.maximumOptionsPerURL else { return }
        if count < Self.maximumOptionsPerURL - 1 {
            lastEntry?.options.append(option)
        } else {
            lastEntry?.options.append(.invalid("more than \(Self.maximumOptionsPerURL - 1) options"))
        }
    }

    private mutating func appendToLine(_ bytes: ArraySlice<UInt8>) {
        line += bytes.prefix(max(0, Self.maximumLineBytes - line.count))
    }
}

/// Conversion of a URL from the command line or a list into its form on the wire.
enum URLText {
    /// Returns the text of a URL with percent-encoding for bytes that are not UTF-8.
    static func text(of bytes: [UInt8]) -> String { percentEncoded(ByteText.text(of: bytes)) }

    /// Percent-encodes bytes of an argument that are not UTF-8.
    static func percentEncoded(_ argument: String) -> String {
        guard ByteText.containsNonUTF8Bytes(argument) else { return argument }
        return argument.unicodeScalars.map { scalar in
            ByteText.byte(of: scalar).map { PercentEncoding.encoded([$0]) { _ in false } } ?? String(scalar)
        }.joined()
    }

    /// Percent-encodes characters beyond ASCII, as browsers do. Returns nil for a URL with spaces or control
    /// characters, and for one that exceeds the limit of the protocol.
    static func wireForm(_ text: String) -> String? {
        var result = text
        if !text.utf8.allSatisfy(\.isVisible) {
            guard text.utf8.allSatisfy({ $0.isVisible || $0 >= 0x80 }) else { return nil }
            result = PercentEncoding.encoded(text.utf8, where: \.isVisible)
        }
        return (1...8192).contains(result.utf8.count) ? result : nil
    }

    /// Removes all parts of a URL that may be secret: user information, query and fragment. `?...` replaces query and
    /// fragment.
    ///
    /// User information ends at the last at sign before the query, since passwords may contain slashes and at signs.
    /// `...@` replaces it if the removed text may include a part of the path.
    static func redacted(_ text: String) -> String {
        let bytes = text.utf8
        let end = bytes.firstIndex { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") } ?? bytes.endIndex
        let start = schemeEnd(bytes[..<end])
        let query = end == bytes.endIndex ? "" : "?..."
        let rest = bytes[start..<end]
        if let at = rest.lastIndex(of: UInt8(ascii: "@")) {
            let isPlain = !rest[..<at].contains(UInt8(ascii: "/"))
            return String(text[..<start]) + (isPlain ? "" : "...@") + text[bytes.index(after: at)..<end] + query
        }
        // The at sign may end a password that contains the question mark.
        guard bytes[end...].contains(UInt8(ascii: "@")), !isHost(rest) else { return text[..<end] + query }
        return text[..<start] + "..." + query
    }

    /// Returns the index after `scheme:` and slashes; the start without a scheme.
    private static func schemeEnd(_ text: Substring.UTF8View) -> String.Index {
        let scheme = text.prefix { $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "@") }
        let rest = text[scheme.endIndex...]
        guard !scheme.isEmpty, rest.starts(with: ":/".utf8) else { return text.startIndex }
        return rest.dropFirst().firstIndex { $0 != UInt8(ascii: "/") } ?? text.endIndex
    }

    /// Whether text begins with a host and an optional port.
    private static func isHost(_ text: Substring.UTF8View) -> Bool {
        let authority = text.prefix { $0 != UInt8(ascii: "/") }
        guard authority.first != UInt8(ascii: "["), let colon = authority.firstIndex(of: UInt8(ascii: ":")) else {
            return true
        }
        return authority[colon...].dropFirst().allSatisfy(\.isDigit)
    }
}
