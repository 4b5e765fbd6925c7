import Curl
import Testing

@testable import TestPeers

/// Requests whose connection serves no other request.
@Suite struct OwnConnectionTests {
    private func loop() throws -> CurlTestLoop {
        try CurlTestLoop(origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    }

    private func own(_ loop: CurlTestLoop) -> TransferRequest {
        var request = TransferRequest(url: loop.url)
        request.requiresExclusiveConnection = true
        return request
    }

    @Test func `it neither takes a kept connection nor leaves one`() throws {
        let loop = try loop()
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.openedConnectionCount == 1)
        for number in 1...3 {
            #expect(try loop.fetch(own(loop))?.openedConnectionCount == 1)
            #expect(loop.run { $0.origin.closedByPeer == number })
            // The handle of such a request has no trace of it.
            #expect(try loop.fetch(TransferRequest(url: loop.url))?.openedConnectionCount == 0)
        }
        #expect(loop.origin.accepted == 4)
        #expect(try #require(loop.multi).connectionCount == 1)
    }

    @Test func `requests that run at once have a connection each`() throws {
        let loop = try loop()
        for number in 0..<8 {
            _ = try loop.start(number % 2 == 0 ? own(loop) : TransferRequest(url: loop.url), sink: RecordingSink())
        }
        #expect(loop.run { $0.finished.count == 8 })
        #expect(loop.run { $0.origin.closedByPeer == 4 })
        #expect(loop.origin.accepted == 8)
    }
}
