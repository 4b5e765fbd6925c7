/// Index of packages (PEP 503 and 691, npm) whose absolute URLs are moved below the prefix of the door.
enum PackageIndex {
    /// Maximum size of an index that is rewritten, before and after. The indexes of the largest packages have some 10
    /// MiB.
    static let maximumBytes = 32 << 20
    private static let indexMediaTypes: Set<Substring> = [
        "text/html", "application/json", "application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.v1+json",
        "application/vnd.npm.install-v1+json",
    ]
    private static let quotationMarks = "\"'".utf8
    private static let urlSchemePrefixes = ["https://", "http://", "https:\\/\\/", "http:\\/\\/"].map { Array($0.utf8) }
    /// Fields about the bytes that the server sent.
    static let invalidatedFields: Set<String> = [
        "content-encoding", "content-md5", "digest", "content-digest", "repr-digest", "accept-ranges",
    ]

    static func isIndex(mediaType: String) -> Bool {
        indexMediaTypes.contains(mediaType.lowercased().prefix { $0 != ";" && $0 != " " })
    }

    /// Returns a text with `base` before each http URL that begins after a quotation mark; nil if it becomes larger
    /// than `limit`.
    static func rewritten(_ text: [UInt8], below base: String, limit: Int = maximumBytes) -> [UInt8]? {
        var result: [UInt8] = []
        result.reserveCapacity(text.count + text.count / 4)
        for (index, byte) in text.enumerated() {
            result.append(byte)
            guard quotationMarks.contains(byte), index + 1 < text.count, text[index + 1] | 0x20 == UInt8(ascii: "h")
            else {
                continue
            }
            let rest = text[(index + 1)...].prefix(10)
            if urlSchemePrefixes.contains(where: { rest.starts(with: $0) }) { result += base.utf8 }
            guard result.count <= limit else { return nil }
        }
        return result
    }
}
