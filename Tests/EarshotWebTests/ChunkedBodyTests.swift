import Testing

@testable import EarshotWeb

@Suite struct ChunkedBodyTests {
    private func read(_ text: String, limit: Int = 1_000, piece: Int = .max) -> (
        ChunkedBody.Reading, [UInt8], rest: [UInt8]
    ) {
        var (body, input, bytes) = (ChunkedBody(maximumBytes: limit), [UInt8](), Array(text.utf8)[...])
        var reading = ChunkedBody.Reading.incomplete
        while reading == .incomplete, !bytes.isEmpty {
            input += bytes.prefix(piece)
            bytes = bytes.dropFirst(piece)
            reading = body.read(&input)
        }
        return (reading, body.decodedBytes, input + bytes)
    }

    @Test(arguments: [1, 2, 3, 7, Int.max])
    func `a body is read in pieces of any size, up to its last byte`(piece: Int) {
        let text = "4\r\nWiki\r\n6;a=\"b\";c\r\npedia \r\nE \t;x\r\nin \r\n\r\nchunks.\r\n0\r\nA: b\r\n\r\nGET /"
        let (reading, bytes, rest) = read(text, piece: piece)
        #expect(reading == .complete)
        #expect(String(decoding: bytes, as: UTF8.self) == "Wikipedia in \r\n\r\nchunks.")
        #expect(String(decoding: rest, as: UTF8.self) == "GET /")
    }

    @Test(arguments: [
        ("1\nA\r\n", 400), ("\r\n", 400), ("g\r\n", 400), ("0x1\r\n", 400), ("-1\r\n", 400), ("1 2\r\n", 400),
        ("+1\r\n", 400),
        ("1\r\nAB\r\n", 400), ("1\r\nA\n", 400), ("1\rA", 400), ("1;\u{1}\r\n", 400), ("fffffffffffffffff\r\n", 400),
        ("0\r\nno colon\r\n", 400), ("0\r\n : b\r\n", 400), ("3e9\r\n", 413), ("fffffffffffffff\r\n", 413),
        ("1;" + String(repeating: "a", count: 300), 400), ("0\r\nA: " + String(repeating: "b", count: 9_000), 400),
    ])
    func `a malformed or large body is rejected`(text: String, status: Int) {
        #expect(read(text).0 == .rejected(status: status))
        #expect(read(text, piece: 1).0 == .rejected(status: status))
    }

    @Test func `extensions have a bound in proportion to the body`() {
        let line = "1;" + String(repeating: "a", count: 250) + "\r\nA\r\n"
        #expect(read(String(repeating: line, count: 60)).0 == .incomplete)
        #expect(read(String(repeating: line, count: 90)).0 == .rejected(status: 400))
    }
}
