/// The last line that is more than blanks of what a program writes, however much that is.
struct LastLine {
    private var last: [UInt8] = []
    private var present: [UInt8] = []

    /// Fit for a message; empty if there is none.
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
