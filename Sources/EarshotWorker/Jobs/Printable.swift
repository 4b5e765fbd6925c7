/// Sanitizer of untrusted text for logs and message heads.
enum Printable {
    /// Returns at most `Limits.sentenceBytes` bytes of `text`, with `?` in place of every byte outside printable ASCII.
    static func sentence(_ text: String) -> String {
        let bytes = text.utf8.prefix(Limits.sentenceBytes).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return String(decoding: bytes, as: UTF8.self)
    }
}
