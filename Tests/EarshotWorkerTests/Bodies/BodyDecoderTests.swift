import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWorker

/// Content codings of a body, alone and two in turn, and their bounds.
@Suite struct BodyDecoderTests {
    /// 258,001 zeros compressed to some hundred bytes.
    private let packed = Deflate.zeros(matches: 1_000)

    /// Decodes `input`, added in one piece.
    ///
    /// - Returns: Number of decoded bytes, and whether the body may end there.
    private func decode(
        _ codings: [ContentCoding], _ input: [UInt8], maxRatio: Int = 0
    ) throws -> (count: Int, isAtEnd: Bool) {
        var decoder = BodyDecoder(codings, maximumDecodingRatio: maxRatio)
        decoder.appendEncoded(input.span)
        var output = [UInt8](repeating: 1, count: 4_096)
        var count = 0
        while decoder.hasUndecodedBytes {
            let step = try decoder.decodeStep(into: &output)
            #expect(output.prefix(step.produced).allSatisfy { $0 == 0 })
            count += step.produced
        }
        return (count, decoder.mayEndHere)
    }

    @Test func `a body is decoded to its end`() throws {
        let whole = try decode([.deflate], packed)
        #expect(whole.count == 258_001 && whole.isAtEnd)
        let cut = try decode([.deflate], Array(packed.dropLast(2)))
        #expect(cut.count > 0 && !cut.isAtEnd)
    }

    @Test func `nothing at all is a body that may end`() {
        let decoder = BodyDecoder([.gzip, .brotli], maximumDecodingRatio: 1)
        #expect(decoder.mayEndHere && !decoder.hasUndecodedBytes)
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
        let bomb = Deflate.zeros(matches: Limits.uncheckedDecodedBytes / 258 + 100)
        let fault = #expect(throws: BodyDecoder.Fault.self) { try decode([.deflate], bomb, maxRatio: 10) }
        #expect(fault == .decodingRatioExceeded)
        #expect(try decode([.deflate], bomb, maxRatio: 200).isAtEnd)
    }

    /// Bytes that decode to nothing, as often as wanted: a stored block, a metadata block, a skippable frame, and the
    /// header of a gzip member whose file name has no end.
    private static let fillers: [(ContentCoding, begin: [UInt8], filler: [UInt8])] = [
        (.deflate, [], [0, 0, 0, 0xff, 0xff]), (.gzip, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], [0, 0, 0, 0xff, 0xff]),
        (.gzip, [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3], [0x61]), (.brotli, [0x0c], [0x06]),
        (.zstd, [], [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]),
    ]

    @Test(arguments: fillers.indices)
    func `bytes that decode to nothing have a bound`(index: Int) throws {
        let (coding, begin, filler) = Self.fillers[index]
        var decoder = BodyDecoder([coding], maximumDecodingRatio: 0)
        var output = [UInt8](repeating: 0, count: 1000)
        let piece = [[UInt8]](repeating: filler, count: 65_536 / filler.count).flatMap(\.self)
        func add(_ bytes: [UInt8], to decoder: inout BodyDecoder) throws(BodyDecoder.Fault) {
            decoder.appendEncoded(bytes.span)
            while decoder.hasUndecodedBytes { #expect(try decoder.decodeStep(into: &output).produced == 0) }
        }
        try add(begin, to: &decoder)
        for _ in 0..<(Limits.maximumBytesDecodedToNothing - begin.count) / piece.count { try add(piece, to: &decoder) }
        var fault: BodyDecoder.Fault?
        do throws(BodyDecoder.Fault) { for _ in 0..<2 { try add(piece, to: &decoder) } } catch { fault = error }
        #expect(fault == .emptyOutput)
    }

    @Test func `the inner of two codings has the bound too`() throws {
        // Each stored block of the outer stream holds one of the inner.
        var decoder = BodyDecoder([.deflate, .deflate], maximumDecodingRatio: 0)
        var output = [UInt8](repeating: 0, count: 1000)
        let inner = [[UInt8]](repeating: [0, 0, 0, 0xff, 0xff], count: 13_000).flatMap(\.self)
        let block = [
            0, UInt8(inner.count & 0xff), UInt8(inner.count >> 8), ~UInt8(inner.count & 0xff), ~UInt8(inner.count >> 8),
        ]
        var fault: BodyDecoder.Fault?
        do throws(BodyDecoder.Fault) {
            for _ in 0..<18 {
                decoder.appendEncoded((block + inner).span)
                while decoder.hasUndecodedBytes { _ = try decoder.decodeStep(into: &output) }
            }
        } catch { fault = error }
        #expect(fault == .emptyOutput)
    }

    @Test func `a stream that is flushed after each byte is no such body`() throws {
        // A stored block of one byte, and an empty one.
        let unit: [UInt8] = [0, 1, 0, 0xfe, 0xff, 7, 0, 0, 0, 0xff, 0xff]
        let bytes = [[UInt8]](repeating: unit, count: 2 * Limits.maximumBytesDecodedToNothing / unit.count).flatMap(
            \.self)
        var decoder = BodyDecoder([.deflate], maximumDecodingRatio: 0)
        var output = [UInt8](repeating: 0, count: 65_536)
        decoder.appendEncoded(bytes.span)
        var produced = 0
        while decoder.hasUndecodedBytes { produced += try decoder.decodeStep(into: &output).produced }
        #expect(produced == bytes.count / unit.count)
    }

    @Test func `damaged bytes are a fault`() {
        let fault = #expect(throws: BodyDecoder.Fault.self) { try decode([.gzip], packed) }
        #expect(fault == .invalidEncoding)
    }
}
