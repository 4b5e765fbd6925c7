/// Parser of a list with one URL per line.
///
/// It skips blank lines, lines that begin with `#`, and a byte order mark at the start. An indented line `name=value`
/// is an option of the URL above it.
struct URLList {
    /// Maximum size of a list that is read at once, in bytes: ten million URLs of the usual length.
    private static let mostBytes = 1 << 30
    /// Maximum length of a stored line, in bytes. It exceeds the longest valid URL, so a truncated line is still
    /// rejected.
    private static let lineBytes = 64 << 10
    /// Maximum number of options of a URL.
    private static let mostOptions = 100

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
        return list.take(try InputFile.read(path, atMost: mostBytes)[...]) + list.finish()
    }

    /// Whether a URL waits for its options.
    var hasOpenEntry: Bool { lastEntry != nil }

    /// Returns the URLs whose options are complete after `bytes`.
    mutating func take(_ bytes: ArraySlice<UInt8>) -> [ListEntry] {
        var entries: [ListEntry] = []
        var rest = bytes
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            append(rest[..<end])
            endLine(&entries)
            rest = rest[(end + 1)...]
        }
        append(rest)
        return entries
    }

    /// Returns the last URL without waiting for options.
    mutating func release() -> [ListEntry] {
        defer { lastEntry = nil }
        return lastEntry.map { [$0] } ?? []
    }

    /// Returns the last URLs, at the end of the list.
    mutating func finish() -> [ListEntry] {
        var entries: [ListEntry] = []
        endLine(&entries)
        return entries + release()
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
        if first > text.startIndex, let option = EntryOption(line: content) { return add(option, &entries) }
        entries += release()
        lastEntry = ListEntry(url: URLText.text(of: Array(content)))
    }

    private mutating func add(_ option: EntryOption, _ entries: inout [ListEntry]) {
        guard let count = lastEntry?.options.count else {
            let reason = "the option has no URL above it, or came too late; write a URL and its options at once"
            return entries.append(ListEntry(url: "line \(lineNumber)", options: [.invalid(reason)]))
        }
        guard count < Self.mostOptions else { return }
        lastEntry?.options.append(
            count == Self.mostOptions - 1 ? .invalid("more than \(Self.mostOptions - 1) options") : option)
    }

    private mutating func append(_ bytes: ArraySlice<UInt8>) {
        line += bytes.prefix(max(0, Self.lineBytes - line.count))
    }
}
