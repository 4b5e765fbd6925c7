/// A list of URLs: one a line, blank lines and those that begin with `#` left out.
enum URLList {
    /// Bytes of a list at most: ten million URLs of the usual length.
    private static let mostBytes = 1 << 30

    /// Reads `path` to its end, `-` being standard input.
    ///
    /// - Throws: `Complaint` when it cannot be read or is longer than 1 GiB.
    static func read(_ path: String) throws(Complaint) -> [String] {
        try InputFile.read(path, atMost: mostBytes).split(separator: UInt8(ascii: "\n")).compactMap { line in
            let isBlank: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            guard let first = line.firstIndex(where: { !isBlank($0) }), line[first] != UInt8(ascii: "#"),
                let last = line.lastIndex(where: { !isBlank($0) })
            else { return nil }
            return URLText.text(of: Array(line[first...last]))
        }
    }
}
