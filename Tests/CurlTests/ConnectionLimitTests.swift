import Curl
import Testing

@testable import TestPeers

/// Connections kept by a multi handle that fetches from many hosts.
@Suite struct ConnectionLimitTests {
    private static let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    private func request(_ host: String, _ loop: CurlTestLoop) -> TransferRequest {
        var request = TransferRequest(url: "http://\(host).test:\(loop.origin.port)/")
        request.resolveEntries = ["\(host).test:\(loop.origin.port):127.0.0.1"]
        return request
    }

    @Test func `a connection beyond the limit is closed at the end of its transfer, and those before stay`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer), maxConnections: 4, crowdedIdleSeconds: 600)
        for number in 0..<12 {
            #expect(try loop.fetch(request("h\(number)", loop))?.failure == nil)
            #expect(try #require(loop.multi).connectionCount == min(number + 1, 4))
        }
        #expect(loop.run { $0.origin.closedByPeer == 8 })
        for number in 0..<4 { #expect(try loop.fetch(request("h\(number)", loop))?.openedConnectionCount == 0) }
        #expect(loop.origin.accepted == 12)
    }

    @Test func `of transfers that run at once no more connections stay than may be kept`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer), maxConnections: 4, crowdedIdleSeconds: 600)
        for number in 0..<12 { _ = try loop.start(request("h\(number)", loop), sink: RecordingSink()) }
        #expect(loop.run { $0.finished.count == 12 })
        #expect(loop.finished.allSatisfy { $0.result.failure == nil })
        #expect(try #require(loop.multi).connectionCount == 4)
        #expect(loop.run { $0.origin.closedByPeer == 8 })
    }

    @Test func `connections that are idle for too long make room in a multi handle that is full`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer), maxConnections: 4, crowdedIdleSeconds: 0)
        for number in 0..<4 { #expect(try loop.fetch(request("h\(number)", loop))?.failure == nil) }
        // libcurl counts whole seconds, and checks for idle connections once per second.
        let deadline = ContinuousClock.now + .seconds(60)
        var isKept = false
        while !isKept, ContinuousClock.now < deadline {
            isKept = try loop.fetch(request("new", loop))?.openedConnectionCount == 0
        }
        #expect(isKept)
        #expect(try #require(loop.multi).connectionCount <= 4)
    }

    @Test func `an address that was tried in vain does not count as a connection`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer), maxConnections: 4)
        for number in 0..<3 {
            var tried = request("h\(number)", loop)
            tried.resolveEntries = ["h\(number).test:\(loop.origin.port):[::1],127.0.0.1"]
            #expect(try loop.fetch(tried)?.failure == nil)
        }
        #expect(try #require(loop.multi).connectionCount == 3)
    }

    @Test func `a connection that the server closes does not count`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer, end: .close), maxConnections: 4)
        for number in 0..<6 {
            #expect(try loop.fetch(request("h\(number)", loop))?.failure == nil)
        }
        let kept = try CurlTestLoop(
            origin: LoopbackOrigin("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok", end: .close))
        for number in 0..<6 { #expect(try kept.fetch(request("h\(number)", kept))?.failure == nil) }
        #expect(try #require(kept.multi).connectionCount == 0)
    }
}
