/// Text that came from outside, made fit for a log and for a head.
enum Printable {
    /// `text` with every byte that is not printable ASCII as `?`, cut after `Limits.sentenceBytes`.
    static func sentence(_ text: String) -> String {
        let bytes = text.utf8.prefix(Limits.sentenceBytes).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return String(decoding: bytes, as: UTF8.self)
    }
}
