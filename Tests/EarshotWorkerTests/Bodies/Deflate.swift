/// Hand-made compressed data: RFC 1951.
enum Deflate {
    /// Returns the stream of one zero byte followed by `matches` runs of 258 zeros, of 13 bits each.
    static func zeros(matches: Int) -> [UInt8] {
        var bits: [Bool] = []
        // The last block, with fixed codes: the literal 0, matches of length 258 at distance 1, and the end.
        append(0b110, 3, to: &bits)
        append(0b0011_0000, 8, to: &bits)
        for _ in 0..<matches { append(0b1_1000_1010_0000, 13, to: &bits) }
        append(0, 7, to: &bits)
        return stride(from: 0, to: bits.count, by: 8).map { start in
            bits[start..<min(start + 8, bits.count)].enumerated().reduce(0) { $0 | ($1.element ? 1 << $1.offset : 0) }
        }
    }

    /// Appends the low `count` bits of `code`, the most significant bit first.
    private static func append(_ code: Int, _ count: Int, to bits: inout [Bool]) {
        for index in (0..<count).reversed() { bits.append(code >> index & 1 == 1) }
    }
}
