import EarshotHTTP
import Testing

@testable import EarshotCache

/// Digests that the cache keeps on the disk, over many processes. The expected ones are of sha256sum(1).
@Suite struct CacheDigestTests {
    private static func hex(_ bytes: [UInt8]) -> String {
        bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
    }

    @Test func `the digest of a key is the same in every process`() throws {
        var request = HTTPRequest(url: try FetchURL("https://user@h.example/a?b"))
        try request.fields.append("Cookie", "c=1")
        try request.fields.append("authorization", "x")
        try request.fields.append("accept", "*/*")
        let salt = Array("salt".utf8)
        #expect(
            Self.hex(CacheDigest(CacheKey(request, partition: "own"), salt: salt).bytes)
                == "8810cd095bf4bd25a25c99eb68627bc57f93e3edd495b27479d948ea75ae9748")
        #expect(
            Self.hex(CacheDigest(CacheKey(HTTPRequest(url: try FetchURL("http://h/"))), salt: []).bytes)
                == "137b9dfb420d86d0bf15ebfebd94b6a03eed3928e7c3e92cde66c50940653714")
    }

    @Test func `the digest of a variant is the same in every process`() throws {
        let names = HeaderFields(lines: Array("vary: Accept-Language, x-b, X-A, cookie".utf8))
        let fields = HeaderFields(lines: Array("x-b: 2\naccept-language: en; q=0.5,de\nx-a: 1".utf8))
        let key = try #require(VaryKey(response: names, request: fields))
        #expect(
            String(decoding: key.canonicalFields, as: UTF8.self)
                == "accept-language:en;q=0.5,de\ncookie\nx-a:1\nx-b:2\n")
        #expect(
            Self.hex(CacheDigest.variantDigest(key, salt: Array("salt".utf8)))
                == "11c635f1aa3cdaf311df070cef0ebe882cf3966587f62fc551051ad2256f8f09")
    }
}
