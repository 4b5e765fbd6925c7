internal import EarshotClient

/// File names of compressed content. Its bytes are requested as published, because a server may declare the compression
/// of the file itself as a content coding.
enum ArchiveName {
    /// Endings in lower case, as in the table of docs/command-line.md.
    static let endings: Set = [
        "7z", "apk", "br", "bz2", "deb", "gz", "jar", "lz", "lz4", "lzma", "rar", "rpm", "svgz", "taz", "tbz", "tbz2",
        "tgz", "tlz", "txz", "tzst", "whl", "xz", "z", "zip", "zst",
    ]

    /// Whether a path ends in one of the endings, in any case.
    static func matches(_ path: String) -> Bool {
        guard let dot = path.utf8.lastIndex(of: UInt8(ascii: ".")) else { return false }
        let ending = path[path.utf8.index(after: dot)...]
        return ending.utf8.count <= 4 && endings.contains(ending.lowercased())
    }

    /// Whether the last segment of a URL's path has one of the endings.
    static func matches(url: String) -> Bool { matches(FileNames.name(of: url)) }
}
