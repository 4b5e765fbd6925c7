import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The record of a shared flight: what it has, and which requests have none.
@Suite struct SharedRequestTests {
    private func request(
        _ url: String = "https://example.com/a?b=c", method: HTTPMethod = .get, fields: [(String, String)] = [],
        _ change: (inout HTTPRequest) -> Void = { _ in }
    ) throws -> HTTPRequest {
        var block = HeaderFields()
        for (name, value) in fields { try block.append(name, value) }
        var request = HTTPRequest(method: method, url: try FetchURL(url), fields: block)
        change(&request)
        return request
    }

    @Test func `a record has method, URL, timeout and fields, and nothing else`() throws {
        let plain = try #require(SharedRequest(try request(), timeoutMilliseconds: 30_000))
        #expect(
            String(decoding: plain.encodedRecord, as: UTF8.self)
                == "1 GET 30000 0 follow default https://example.com/a?b=c")
        let full = try #require(
            SharedRequest(
                try request(method: .head, fields: [("Accept", "text/html"), ("range", "bytes=0-9")]),
                timeoutMilliseconds: 0))
        #expect(
            String(decoding: full.encodedRecord, as: UTF8.self)
                == "1 HEAD 0 0 follow default https://example.com/a?b=c\nAccept: text/html\nrange: bytes=0-9")
        #expect(SharedRequest(record: plain.encodedRecord) == plain)
        #expect(SharedRequest(record: full.encodedRecord) == full)
        let coded = try #require(
            SharedRequest(try request { $0.route.decodesBody = false }, timeoutMilliseconds: 0, maximumBodyBytes: 9))
        #expect(
            String(decoding: coded.encodedRecord, as: UTF8.self) == "2 GET 0 9 follow default https://example.com/a?b=c"
        )
        #expect(SharedRequest(record: coded.encodedRecord) == coded && !coded.httpRequest.route.decodesBody)
    }

    @Test func `a record has the address policy of its node, and the nodes whose bodies it cannot read`() throws {
        let block = [("accept", "text/html")]
        for (policy, avoided) in [
            ("public-only, deny *.example.org", ["10.0.0.1:1", "[::1]:2"]), ("", ["10.0.0.1:1"]), ("public-only", []),
        ] {
            for fields in [[], block] {
                let shared = try #require(
                    SharedRequest(
                        try request(fields: fields), timeoutMilliseconds: 0, policy: policy, avoided: avoided))
                let read = try #require(SharedRequest(record: shared.encodedRecord))
                #expect(read == shared && read.addressPolicy == policy && read.avoidedAddresses == avoided)
            }
        }
        let rules = String(repeating: "deny 10.0.0.0/8, ", count: 1_000)
        #expect(SharedRequest(try request(), timeoutMilliseconds: 0, policy: rules) == nil)
    }

    @Test func `a request that may identify a user, or needs more than a record, stays on its node`() throws {
        let staying: [HTTPRequest] = try [
            request(method: .post), request("ftp://example.com/"), request("https://user:word@example.com/"),
            request(fields: [("Authorization", "Bearer x")]), request(fields: [("cookie", "a=b")]),
            request(fields: [("X-Api-Key", "k")]),
            request(fields: [("Referer", "https://example.com/private")]),
            request { $0.cookieJarOwner = "app" }, request { $0.route.proxy = "none" },
            request { $0.route.verifiesServer = false }, request { $0.route.deliversErrorResponses = true },
            request { $0.route.clientCertificate = "/a.pem" },
            request(fields: [("accept", String(repeating: "a", count: EngineLimits.maximumRecordBytes))]),
        ]
        for request in staying {
            #expect(SharedRequest(request, timeoutMilliseconds: 0) == nil, "\(request.url.description)")
        }
        let named = CredentialRule(additionalNames: ["User-Agent"])
        let agent = try request(fields: [("User-Agent", "secret")])
        #expect(SharedRequest(agent, timeoutMilliseconds: 0, credentials: named) == nil)
        #expect(SharedRequest(agent, timeoutMilliseconds: 0) != nil)
    }

    @Test(arguments: [
        "", "1", "3 GET 0 0 follow default https://example.com/", "1 GET 0",
        "1 GET x 0 follow default https://example.com/",
        "1 GET -1 0 follow default https://example.com/",
        "1 GET 0 0 follow default example.com", "1 POST 0 0 follow default https://example.com/",
        "1 GET 0 0 follow default https://example.com/ x",
        "1 GET 0 0 follow default file:///etc/passwd", "1 GET 0 0 follow default https://user@example.com/",
        "1 GET 0 0 follow default https://example.com/\nAuthorization: Bearer x",
        "1 GET 0 0 follow default https://example.com/\nX-Own: 1",
        "1 GET 4294967296 0 follow default https://example.com/",
        "1 GET 0 x follow default https://example.com/", "1 GET 0 -1 follow default https://example.com/",
        "1 GET 0 0 some default https://example.com/", "1 GET 0 0 follow some https://example.com/",
        "1 GET 0 https://example.com/",
    ])
    func `a record of another form, or of a request that must not be shared, is refused`(text: String) {
        #expect(SharedRequest(record: Array(text.utf8)) == nil)
    }

    @Test func `bytes that are no text, and a record that is too long, are refused`() {
        #expect(SharedRequest(record: [0xff, 0xfe, 0x0a]) == nil)
        let long =
            "1 GET 0 0 follow default https://example.com/\naccept: "
            + String(repeating: "a", count: EngineLimits.maximumRecordBytes)
        #expect(SharedRequest(record: Array(long.utf8)) == nil)
    }
}
