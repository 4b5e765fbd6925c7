internal import Glibc

/// Detection of bodies that are no text, for a terminal.
enum BinaryBody {
    /// Number of bytes that are examined.
    static let checkedBytes = 2_000

    /// Whether bytes contain a control character that is unusual in text. Backspace, bell and escape occur in text for
    /// terminals.
    static func isBinary(_ bytes: [UInt8]) -> Bool {
        bytes.prefix(checkedBytes).contains { $0 < 0x20 && ![7, 8, 9, 10, 12, 13, 27].contains($0) }
    }

    /// Returns the first bytes of a file from an offset; empty if it cannot be read.
    static func beginning(of descriptor: Int32, at offset: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: checkedBytes)
        let count = unsafe pread(descriptor, &bytes, bytes.count, off_t(offset))
        return Array(bytes.prefix(max(0, count)))
    }

    static let refusal = OutputFailure.cannotWrite(
        "the body is binary, and standard output is a terminal; give -o FILE, or -o - to write it to the terminal")
}
