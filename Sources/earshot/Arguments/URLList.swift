/// Parser of a list with one URL per line. It skips blank lines, lines that begin with `#`, and a byte order mark at
/// the start.
struct URLList {
    /// Maximum size of a list that is read at once, in bytes: ten million URLs of the usual length.
    private static let mostBytes = 1 << 30
    /// Maximum length of a stored line, in bytes. It exceeds the longest valid URL, so a truncated line is still
    /// rejected.
    private static let lineBytes = 64 << 10
    private static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// Bytes of the incomplete line.
    private var line: [UInt8] = []
    private var isFirst = true

    /// Reads `path` to its end, or standard input for `-`.
    ///
    /// - Throws: `Complaint` if the list cannot be read or is longer than 1 GiB.
    static func read(_ path: String) throws(Complaint) -> [String] {
        var list = URLList()
        return list.take(try InputFile.read(path, atMost: mostBytes)[...]) + list.finish()
    }

    /// Returns the URLs of the lines that end in `bytes`.
    mutating func take(_ bytes: ArraySlice<UInt8>) -> [String] {
        var urls: [String] = []
        var rest = bytes
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            append(rest[..<end])
            urls += finish()
            rest = rest[(end + 1)...]
        }
        append(rest)
        return urls
    }

    /// Returns the URL of the incomplete line, at the end of the line or of the list.
    mutating func finish() -> [String] {
        defer { line.removeAll(keepingCapacity: true) }
        var text = line[...]
        if isFirst, text.starts(with: Self.byteOrderMark) { text = text.dropFirst(Self.byteOrderMark.count) }
        isFirst = false
        let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
        guard let first = text.firstIndex(where: { !isBlank($0) }), text[first] != UInt8(ascii: "#"),
            let last = text.lastIndex(where: { !isBlank($0) })
        else { return [] }
        return [URLText.text(of: Array(text[first...last]))]
    }

    private mutating func append(_ bytes: ArraySlice<UInt8>) {
        line += bytes.prefix(max(0, Self.lineBytes - line.count))
    }
}
