/// A list of URLs: one a line, without blank lines and those that begin with `#`. A byte order mark at its start is no
/// part of it.
struct URLList {
    /// Bytes of a list that is read at once: ten million URLs of the usual length.
    private static let mostBytes = 1 << 30
    /// Bytes of a line that are kept: more than the longest URL has, so that a longer line is known to be none.
    private static let lineBytes = 64 << 10
    private static let byteOrderMark: [UInt8] = [0xef, 0xbb, 0xbf]

    /// The line that has begun.
    private var line: [UInt8] = []
    private var isFirst = true

    /// Reads `path` to its end, `-` being standard input.
    ///
    /// - Throws: `Complaint` when it cannot be read or is longer than 1 GiB.
    static func read(_ path: String) throws(Complaint) -> [String] {
        var list = URLList()
        return list.take(try InputFile.read(path, atMost: mostBytes)[...]) + list.finish()
    }

    /// The URLs of the lines that end in the next bytes.
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

    /// The URL of the line that has begun, at the end of the list or of the line.
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
