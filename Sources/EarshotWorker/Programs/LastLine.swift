/// The last non-blank line of a stream, in bounded memory.
struct LastLine {
    private var last: [UInt8] = []
    private var present: [UInt8] = []

    /// Sanitized text for a message; empty without such a line.
    var text: String {
        Printable.sentence(String(decoding: Self.isBlank(present) ? last : present, as: UTF8.self))
    }

    mutating func append(_ bytes: Span<UInt8>) {
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == UInt8(ascii: "\n") {
                if !Self.isBlank(present) { last = present }
                present.removeAll(keepingCapacity: true)
            } else if present.count < Limits.sentenceBytes {
                present.append(byte)
            }
        }
    }

    private static func isBlank(_ line: [UInt8]) -> Bool { line.allSatisfy { $0 <= 0x20 } }
}
