import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Results as other nodes read them from the engine, and bytes that are none.
@Suite struct SharedResultTests {
    private static let digest = String(repeating: "0f", count: 32)
    private static let place = "10.0.0.1:5766/000000000000000100000000000000ff/7"

    private static func response(
        _ status: Int = 200, length: Int = 0, sha256: String? = nil, place: BodyAddress? = nil, fields: String = ""
    ) -> SharedResult.Content {
        .response(
            SharedResult.Response(
                status: status, bodyLength: length, sha256: sha256, bodyAddress: place, fields: Array(fields.utf8)))
    }

    private func content(_ text: String) -> SharedResult.Content? { SharedResult(Array(text.utf8))?.content }

    @Test(arguments: [
        (response(204), "1 r 204 0 - -"),
        (response(302, fields: "location: /a\nb: c"), "1 r 302 0 - -\nlocation: /a\nb: c"),
        (
            response(200, length: 5_120, sha256: digest, place: BodyAddress(place), fields: "a: b"),
            "1 r 200 5120 \(digest) \(place)\na: b"
        ),
        (response(301, length: 9, sha256: digest), "1 r 301 9 \(digest) -"),
        (.failure(.connectRefused, allowedBytes: nil, detail: nil), "1 f connect-refused - "),
        (.failure(.tooLarge, allowedBytes: 0, detail: "too much"), "1 f too-large 0 too much"),
    ])
    func `a result is written and read again`(content: SharedResult.Content, text: String) {
        #expect(String(decoding: SharedResult(content).encodedBytes, as: UTF8.self) == text)
        #expect(self.content(text) == content)
    }

    @Test func `the detail of a failure has one line`() {
        let bytes = SharedResult(.failure(.tls, allowedBytes: nil, detail: "a\nb\r\n c")).encodedBytes
        #expect(!bytes.contains(UInt8(ascii: "\n")))
        #expect(SharedResult(bytes) != nil)
    }

    @Test(arguments: [
        "", " ", "1", "1 r", "2 r 200 0 - -", "1 x 200 0 - -", "1 r 99 0 - -", "1 r 1000 0 - -", "1 r x 0 - -",
        "1 r 200 -1 - -", "1 r 200 x - -", "1 r 200 0 -", "1 r 200 0 - x", "1 r 200 0 zz -", "1 r 200 0 - - -",
        "1 r 200 99999999999999999999 - -", "1 r 200 5 \(digest.uppercased()) \(place)", "1  r 200 0 - -",
        // A body is known by its length and digest.
        "1 r 200 0 \(digest) \(place)", "1 r 200 5 - \(place)",
        "1 f", "1 f connect-refused", "1 f nonsense - x", "1 f connect-refused x -", "1 f too-large -1 -",
        // Failures of one node alone.
        "1 f spool-full - -", "1 f worker-lost - -", "1 f deadline - -", "1 f cancelled - -",
    ])
    func `any other text is no result`(text: String) { #expect(content(text) == nil) }

    @Test func `hostile bytes are no result`() {
        #expect(SharedResult([0xff, 0xfe]) == nil)
        #expect(SharedResult(Array("1 r 200 0 - ".utf8) + [0xc3]) == nil)
        let long =
            Array("1 r 200 0 - -\n".utf8) + Array(repeating: UInt8(ascii: "a"), count: WireLimits.responseFieldBytes)
        #expect(SharedResult(long) != nil)
        #expect(SharedResult(long + [UInt8(ascii: "a")]) == nil)
        // Each byte of a valid result is replaced by each of some others: nothing traps.
        let valid = Array("1 r 200 5120 \(Self.digest) \(Self.place)\na: b".utf8)
        for place in valid.indices {
            for byte: UInt8 in [0, 0x0a, 0x20, 0x2d, 0x2f, 0x39, 0x80, 0xff] {
                var bytes = valid
                bytes[place] = byte
                if let result = SharedResult(bytes) { #expect(SharedResult(result.encodedBytes) == result) }
            }
        }
    }

    @Test func `only failures that concern all nodes are shared`() {
        #expect(SharedResult.isSharedFailure(.timeout))
        #expect(SharedResult.isSharedFailure(.tooLarge))
        #expect(!SharedResult.isSharedFailure(.spoolFull))
        #expect(!SharedResult.isSharedFailure(.workerLost))
        #expect(!SharedResult.isSharedFailure(.internalError))
    }
}
