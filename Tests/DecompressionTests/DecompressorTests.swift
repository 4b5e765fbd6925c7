import Testing

@testable import Decompression

/// Compressed streams of all formats, whole, in pieces and damaged.
@Suite struct DecompressorTests {
    /// `hello, hello, hello, hello` and a line end, in each format.
    static let plain = Array("hello, hello, hello, hello\n".utf8)
    static let gzip: [UInt8] = [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 72, 205, 201, 201, 215, 81, 200, 192, 164, 184, 0, 75, 33, 161, 41, 27, 0,
        0, 0,
    ]
    static let zlib: [UInt8] = [
        120, 156, 203, 72, 205, 201, 201, 215, 81, 200, 192, 164, 184, 0, 133, 85, 9, 63,
    ]
    static let deflate: [UInt8] = [
        203, 72, 205, 201, 201, 215, 81, 200, 192, 164, 184, 0,
    ]
    static let brotli: [UInt8] = [
        27, 26, 0, 0, 36, 21, 64, 88, 114, 16, 69, 166, 169, 196, 115, 250, 78, 0,
    ]
    static let zstd: [UInt8] = [
        40, 181, 47, 253, 32, 27, 117, 0, 0, 64, 104, 101, 108, 108, 111, 44, 32, 10, 1, 0, 74, 138, 17,
    ]

    static let streams: [(CompressionFormat, [UInt8])] = [
        (.gzip, gzip), (.deflate, zlib), (.deflate, deflate), (.brotli, brotli), (.zstd, zstd),
    ]

    /// Decompresses `input` in pieces of at most `piece` bytes, with room for `room` bytes of output per step.
    ///
    /// - Returns: Output, and whether the stream is complete.
    private func read(
        _ format: CompressionFormat, _ input: [UInt8], piece: Int = .max, room: Int = 1_000
    ) throws -> (output: [UInt8], isAtEnd: Bool) {
        var decompressor = Decompressor(format)
        var output = [UInt8](repeating: 0, count: room)
        var all: [UInt8] = []
        var start = 0
        var isFull = false
        var isAtEnd = false
        while start < input.count || isFull {
            let end = min(input.count, start + min(piece, input.count))
            let step = try decompressor.step(input.span.extracting(start..<end), into: &output)
            start += step.consumedBytes
            isFull = step.producedBytes == room
            isAtEnd = step.isAtEnd
            all += output.prefix(step.producedBytes)
        }
        return (all, isAtEnd)
    }

    @Test("a stream is read however it is cut", arguments: streams)
    func whole(format: CompressionFormat, stream: [UInt8]) throws {
        for (piece, room) in [(1, 1), (1, 1_000), (.max, 1), (.max, 1_000), (3, 7)] {
            let (output, isAtEnd) = try read(format, stream, piece: piece, room: room)
            #expect(output == Self.plain)
            #expect(isAtEnd)
        }
    }

    @Test("a stream that ends early is not at its end", arguments: streams)
    func cut(format: CompressionFormat, stream: [UInt8]) throws {
        for count in 0..<stream.count {
            #expect(try !read(format, Array(stream.prefix(count))).isAtEnd, "after \(count) bytes")
        }
    }

    @Test(
        "what follows a stream is ignored",
        arguments: [(CompressionFormat.gzip, gzip), (.deflate, zlib), (.brotli, brotli)])
    func garbage(format: CompressionFormat, stream: [UInt8]) throws {
        for garbage: [UInt8] in [[0], [0x1f, 0], Array("garbage".utf8)] {
            let (output, isAtEnd) = try read(format, stream + garbage, piece: 5)
            #expect(output == Self.plain)
            #expect(isAtEnd)
        }
    }

    @Test("members and frames in a row are one stream", arguments: [(CompressionFormat.gzip, gzip), (.zstd, zstd)])
    func rows(format: CompressionFormat, stream: [UInt8]) throws {
        for piece in [1, 4, .max] {
            let (output, isAtEnd) = try read(format, stream + stream + stream, piece: piece)
            #expect(output == Self.plain + Self.plain + Self.plain)
            #expect(isAtEnd)
        }
        #expect(try !read(format, stream + stream.dropLast()).isAtEnd)
        #expect(try !read(format, stream + stream.prefix(1)).isAtEnd)
    }

    @Test("bytes of another format are damaged", arguments: CompressionFormat.allCases)
    func damaged(format: CompressionFormat) {
        let error = #expect(throws: DecompressionError.self) { try read(format, [UInt8](repeating: 0xff, count: 64)) }
        #expect(error?.format == format)
    }

    @Test func `a wrong checksum is damage`() {
        var stream = Self.gzip
        stream[stream.count - 6] ^= 1
        #expect(throws: DecompressionError.self) { try read(.gzip, stream) }
    }

    @Test("frames of versions before RFC 8878 are refused", arguments: UInt8(0x1e)...0x27)
    func legacy(first: UInt8) {
        for piece in [1, 2, 100] {
            #expect(throws: DecompressionError.self) {
                try read(.zstd, [first, 0xb5, 0x2f, 0xfd, 0x4b, 0x2a], piece: piece)
            }
        }
    }

    @Test func `a zstd window of more than 8 MiB is refused`() {
        // A frame header: magic number, multiple segments, a window of 16 MiB.
        #expect(throws: DecompressionError.self) {
            try read(.zstd, [0x28, 0xb5, 0x2f, 0xfd, 0x00, (24 - 10) << 3, 0x01, 0, 0])
        }
    }
}
