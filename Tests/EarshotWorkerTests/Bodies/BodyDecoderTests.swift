import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWorker

@Suite struct BodyDecoderTests {
    /// 258,001 zeros compressed to some hundred bytes.
    private let packed = Deflate.zeros(matches: 1_000)

    /// Decodes `input`, added in one piece.
    ///
    /// - Returns: Number of decoded bytes, and whether the body may end there.
    private func decode(
        _ codings: [ContentCoding], _ input: [UInt8], maxRatio: Int = 0
    ) throws -> (count: Int, isAtEnd: Bool) {
        var decoder = BodyDecoder(codings, maxRatio: maxRatio)
        decoder.add(input.span)
        var output = [UInt8](repeating: 1, count: 4_096)
        var count = 0
        while decoder.hasWork {
            let step = try decoder.step(into: &output)
            #expect(output.prefix(step.produced).allSatisfy { $0 == 0 })
            count += step.produced
        }
        return (count, decoder.isAtEnd)
    }

    @Test func `a body is decoded to its end`() throws {
        let whole = try decode([.deflate], packed)
        #expect(whole.count == 258_001 && whole.isAtEnd)
        let cut = try decode([.deflate], Array(packed.dropLast(2)))
        #expect(cut.count > 0 && !cut.isAtEnd)
    }

    @Test func `nothing at all is a body that may end`() {
        let decoder = BodyDecoder([.gzip, .brotli], maxRatio: 1)
        #expect(decoder.isAtEnd && !decoder.hasWork)
    }

    @Test func `of two codings the first given is undone first`() throws {
        // An uncompressed zlib stream around the other one.
        let length = UInt16(packed.count)
        var sum: (UInt32, UInt32) = (1, 0)
        for byte in packed {
            sum.0 = (sum.0 + UInt32(byte)) % 65_521
            sum.1 = (sum.1 + sum.0) % 65_521
        }
        let check = sum.1 << 16 | sum.0
        let outer =
            [0x78, 0x01, 1] + [length, ~length].flatMap { [UInt8($0 & 0xff), UInt8($0 >> 8)] } + packed
            + [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: check >> $0) }
        let whole = try decode([.deflate, .deflate], outer)
        #expect(whole.count == 258_001 && whole.isAtEnd)
        #expect(try !decode([.deflate, .deflate], Array(outer.dropLast())).isAtEnd)
    }

    @Test func `a ratio counts for large bodies alone`() throws {
        #expect(try decode([.deflate], packed, maxRatio: 10).isAtEnd)
        let bomb = Deflate.zeros(matches: Limits.freeDecodedBytes / 258 + 100)
        let fault = #expect(throws: BodyDecoder.Fault.self) { try decode([.deflate], bomb, maxRatio: 10) }
        #expect(fault == .tooCompressed)
        #expect(try decode([.deflate], bomb, maxRatio: 200).isAtEnd)
    }

    @Test func `damaged bytes are a fault`() {
        let fault = #expect(throws: BodyDecoder.Fault.self) { try decode([.gzip], packed) }
        #expect(fault == .damaged)
    }
}
