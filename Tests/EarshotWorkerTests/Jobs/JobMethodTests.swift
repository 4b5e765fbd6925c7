import EarshotWire
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Requests with methods other than GET and HEAD.
struct JobMethodTests {
    /// Returns the request that the origin receives for a job with this method and body.
    private func request(_ method: String, _ body: [UInt8]?, fields: String = "") throws -> String {
        let bed = try Bed { _ in .ok([]) }
        var job = bed.job()
        job.method = method
        job.httpFields = Array(fields.utf8)
        #expect(try bed.fetch(job, body: body))
        #expect(bed.broker.completion(job.attempt)?.completion.status == 200)
        return try #require(bed.origin.requests.first).lowercased()
    }

    @Test(arguments: ["POST", "PUT", "PATCH", "DELETE", "PURGE"])
    func `a body goes out with its length and nothing else is made up`(method: String) throws {
        let seen = try request(method, Array("a=1\u{0}&b".utf8))
        #expect(seen.hasPrefix("\(method.lowercased()) /file http/1.1\r\n"))
        #expect(seen.contains("\r\ncontent-length: 6\r\n"))
        #expect(seen.hasSuffix("\r\n\r\na=1\u{0}&b"))
        #expect(!seen.contains("content-type") && !seen.contains("expect:"))
    }

    @Test func `a type that the client gives is the one that is sent`() throws {
        #expect(
            try request("POST", [0x7b, 0x7d], fields: "content-type: application/json").contains(
                "\r\ncontent-type: application/json\r\n"))
    }

    @Test func `a body over a mebibyte waits for nobody`() throws {
        let seen = try request("PUT", [UInt8](repeating: 0x61, count: (1 << 20) + 5))
        #expect(seen.contains("\r\ncontent-length: 1048581\r\n") && !seen.contains("expect:"))
    }

    @Test func `a method that means a body says that it has none`() throws {
        #expect(try request("POST", nil).contains("\r\ncontent-length: 0\r\n"))
        #expect(try !request("DELETE", nil).contains("content-length"))
    }

    @Test func `what may not be repeated is sent once over a connection of its own`() throws {
        let bed = try Bed { head in head.hasPrefix("GET") ? .ok([]) : .init("", closes: true) }
        #expect(try bed.fetch(bed.job()))
        var job = bed.job()
        job.method = "POST"
        #expect(try bed.fetch(job, body: [1]))
        #expect(bed.broker.failure(job.attempt) == "reset")
        #expect(bed.origin.requests.count == 2)
        #expect(bed.origin.accepted == 2)
    }
}
