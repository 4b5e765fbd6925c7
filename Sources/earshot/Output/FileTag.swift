internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Entity tag of the body in a file, RFC 9110 section 8.8.3, kept as an extended attribute of the file.
///
/// With it `--continue` recognizes another version of the body. A file system without such attributes keeps none, and
/// neither does a link.
enum FileTag {
    /// Maximum length in bytes. Longer ones are not kept: the attributes of a file share one block.
    private static let mostBytes = 1_024
    private static let attribute = FileAttribute("user.earshot.etag", mostBytes: mostBytes)

    /// Returns the tag of a file; nil without one.
    static func read(_ path: String) -> String? {
        let tag = attribute.value(of: path).map { String(decoding: $0, as: UTF8.self) }
        return tag.flatMap { isStrong($0) ? $0 : nil }
    }

    /// Keeps the tag of a response with its file. Removes that of an earlier body.
    static func keep(of response: Terminal.Response?, at path: String) {
        let tag = response.flatMap { HeaderFields(lines: $0.httpFields).first("etag") }
        attribute.set(tag.flatMap { isStrong($0) ? Array($0.utf8) : nil }, of: path)
    }

    /// Whether a tag has the form of one that identifies each byte. Any program may have written the attribute.
    private static func isStrong(_ tag: String) -> Bool {
        tag.utf8.count <= mostBytes && tag.utf8.count >= 2 && tag.hasPrefix("\"") && tag.hasSuffix("\"")
            && tag.utf8.dropFirst().dropLast().allSatisfy { (0x21...0x7e).contains($0) && $0 != 0x22 }
    }
}
