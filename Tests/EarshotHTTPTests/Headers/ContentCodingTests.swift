import EarshotHTTP
import Testing

/// Names of content codings.
@Suite struct ContentCodingTests {
    @Test(
        "the codings to undo are known ones, the last applied first, two at most",
        arguments: [
            Case("RFC 9110 8.4, none", "content-type: a/b", [ContentCoding]()),
            Case("RFC 9110 8.4.1.3", "Content-Encoding: gzip", [.gzip]),
            Case("RFC 9110 8.4.1.3, its old name", "content-encoding: x-gzip", [.gzip]),
            Case("RFC 9110 8.4.1, in any case", "content-encoding: GZip", [.gzip]),
            Case("RFC 9110 8.4.1.2", "content-encoding: deflate", [.deflate]),
            Case("RFC 7932", "content-encoding: br", [.brotli]),
            Case("RFC 8878", "content-encoding: zstd", [.zstd]),
            Case("RFC 9110 8.4, in the order applied", "content-encoding: gzip, br", [.brotli, .gzip]),
            Case("RFC 9110 5.2, two lines", "content-encoding: gzip\ncontent-encoding: br", [.brotli, .gzip]),
            Case("RFC 9110 8.4, identity is none", "content-encoding: identity, gzip", [.gzip]),
            Case("RFC 9110 5.6.1, empty members", "content-encoding: ,, gzip ,", [.gzip]),
            Case("three pass", "content-encoding: gzip, gzip, gzip", []),
            Case("unknown ones pass", "content-encoding: UTF-8", []),
            Case("with a known one too", "content-encoding: aws-chunked, gzip", []),
            Case("with a known one too", "content-encoding: gzip, rot13", []),
            Case("a parameter is not known", "content-encoding: gzip;q=1", []),
            Case("nothing", "content-encoding:", []),
            Case("a gzip archive", "content-type: application/gzip\ncontent-encoding: gzip", []),
            Case("its older type", "Content-Type: Application/X-GZIP ;q=1\ncontent-encoding: x-gzip", []),
            Case("a coded archive", "content-type: application/gzip\ncontent-encoding: br", [.brotli]),
            Case("no gzip archive", "content-type: application/x-tar\ncontent-encoding: gzip", [.gzip]),
            Case("any bytes", "content-type: application/octet-stream\ncontent-encoding: gzip", [.gzip]),
        ])
    func codings(_ row: Case<[ContentCoding]>) {
        #expect(HeaderFields(lines: Array(row.input.utf8)).codingsToDecode == row.expected)
    }

    @Test(
        "no transfer coding but chunked is asked for",
        arguments: [
            Case("RFC 9112 7.1", "transfer-encoding: chunked", false), Case("none", "te: gzip", false),
            Case("in any case", "Transfer-Encoding: Chunked", false),
            Case("RFC 9112 7.2", "transfer-encoding: gzip, chunked", true),
            Case("two lines", "transfer-encoding: gzip\ntransfer-encoding: chunked", true),
            Case("libcurl would undo it", "transfer-encoding: br", true),
        ])
    func transferCodings(_ row: Case<Bool>) {
        #expect(HeaderFields(lines: Array(row.input.utf8)).hasUnrequestedTransferCoding == row.expected)
    }
}
