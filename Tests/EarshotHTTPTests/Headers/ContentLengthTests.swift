import EarshotHTTP
import Testing

/// Lengths of bodies, and contradictory ones.
@Suite struct ContentLengthTests {
    @Test(
        "a length is known, absent, or an error that cannot be recovered from",
        arguments: [
            Case("RFC 9112 6.3 (6)", "content-length: 5", ContentLength.bytes(5)),
            Case("RFC 9110 8.6, nothing", "content-length: 0", .bytes(0)),
            Case("RFC 9110 8.6, zeros before", "Content-Length: 0005", .bytes(5)),
            Case("RFC 9112 6.3 (8)", "content-type: a/b", .absent),
            Case("RFC 9112 6.3 (3)", "transfer-encoding: chunked\ncontent-length: 5", .absent),
            Case("RFC 9112 6.3 (3), whatever it says", "transfer-encoding: chunked\ncontent-length: x", .absent),
            Case("RFC 9112 6.3 (5), one number twice", "content-length: 5\ncontent-length: 5", .bytes(5)),
            Case("RFC 9112 6.3 (5), in a list", "content-length: 5, 5\ncontent-length: 05", .bytes(5)),
            Case("RFC 9112 6.3 (5), empty members", "content-length: 5,, 5,", .bytes(5)),
            Case("RFC 9112 6.3 (5), two numbers", "content-length: 5\ncontent-length: 6", .invalid),
            Case("RFC 9112 6.3 (5), in a list", "content-length: 5, 6", .invalid),
            Case("RFC 9112 6.3 (5), a sign", "content-length: +5", .invalid),
            Case("RFC 9112 6.3 (5), negative", "content-length: -5", .invalid),
            Case("RFC 9112 6.3 (5), hexadecimal", "content-length: 0x5", .invalid),
            Case("RFC 9112 6.3 (5), a fraction", "content-length: 5.0", .invalid),
            Case("RFC 9112 6.3 (5), two words", "content-length: 5 5", .invalid),
            Case("RFC 9112 6.3 (5), nothing", "content-length:", .invalid),
            Case("RFC 9112 6.3 (5), no member", "content-length: ,", .invalid),
            Case("RFC 9112 6.3 (5), one is none", "content-length: 5\ncontent-length: five", .invalid),
            Case("RFC 9110 8.6, the most", "content-length: 9223372036854775807", .bytes(.max)),
            Case("RFC 9110 8.6, too much", "content-length: 9223372036854775808", .invalid),
            Case("RFC 9110 8.6, far too much", "content-length: 99999999999999999999999999", .invalid),
        ])
    func lengths(_ row: Case<ContentLength>) {
        #expect(ContentLength(HeaderFields(lines: Array(row.input.utf8))) == row.expected)
    }
}
