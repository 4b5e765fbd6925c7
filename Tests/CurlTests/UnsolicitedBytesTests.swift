import Curl
import Testing

@testable import TestPeers

/// Bytes sent by a server on an idle connection.
@Suite struct UnsolicitedBytesTests {
    private static func answer(_ body: String) -> String { "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\(body)" }

    @Test(
        "bytes that came before a request are no answer to it, and their connection is closed",
        arguments: [answer("evil"), "HTTP/1.1 200 OK\r\nContent-Le", "\r\n", "x"])
    func unsolicited(bytes: String) throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer("good")))
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil)
        #expect(loop.sendUnsolicited(bytes, connections: 1))

        let second = RecordingSink()
        let result = try #require(try loop.fetch(TransferRequest(url: loop.url), sink: second))
        #expect(result.failure == nil, "\(result)")
        #expect(second.text == "good")
        #expect(result.openedConnectionCount == 1)
        #expect(loop.origin.accepted == 2)
        #expect(loop.run { $0.origin.closedByPeer == 1 })

        // The new connection can be reused.
        let third = RecordingSink()
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: third)?.openedConnectionCount == 0)
        #expect(third.text == "good")
        #expect(loop.origin.accepted == 2)
    }

    @Test func `each of several connections is looked at before it is used again`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer("good")))
        for _ in 0..<3 {
            let sinks = (0..<4).map { _ in RecordingSink() }
            let count = loop.finished.count
            for sink in sinks { _ = try loop.start(TransferRequest(url: loop.url), sink: sink) }
            #expect(loop.run { $0.finished.count == count + 4 })
            #expect(loop.finished.allSatisfy { $0.result.failure == nil })
            #expect(sinks.allSatisfy { $0.text == "good" })
            #expect(loop.sendUnsolicited(Self.answer("evil"), connections: 4))
        }
        #expect(loop.origin.accepted == 12)
        #expect(loop.run { $0.origin.closedByPeer == 8 })
    }

    @Test func `a connection that was the second to be tried is used again`() throws {
        let loop = try CurlTestLoop(origin: LoopbackOrigin(Self.answer("good")))
        var request = TransferRequest(url: "http://name.test:\(loop.origin.port)/")
        request.resolveEntries = ["name.test:\(loop.origin.port):[::1],127.0.0.1"]
        #expect(try loop.fetch(request)?.openedConnectionCount == 1)
        #expect(try loop.fetch(request)?.openedConnectionCount == 0)
        #expect(loop.sendUnsolicited(Self.answer("evil"), connections: 1))
        let sink = RecordingSink()
        #expect(try loop.fetch(request, sink: sink)?.openedConnectionCount == 1)
        #expect(sink.text == "good")
    }

    @Test(arguments: [1, 3, 10], [LoopbackOrigin.Reply.End.close, .reset])
    func `a request whose reused connection ends is sent once more, on a new one`(
        idle: Int, end: LoopbackOrigin.Reply.End
    ) throws {
        for method in [
            TransferRequest.Method.get, .other("PUT", isRepeatable: true), .other("POST", isRepeatable: false),
        ] {
            let loop = try CurlTestLoop(
                origin: LoopbackOrigin { head in
                    if head.contains("/bad") { return .init(bytes: [], end: end) }
                    return .init(bytes: Array(Self.answer("good").utf8), end: .open)
                })
            for _ in 0..<idle { _ = try loop.start(TransferRequest(url: loop.url), sink: RecordingSink()) }
            #expect(loop.run { $0.finished.count == idle })
            var request = TransferRequest(url: "http://127.0.0.1:\(loop.origin.port)/bad")
            request.method = method
            let result = try #require(try loop.fetch(request))
            #expect(result.failure == .reset)
            let repeats = method == .other("POST", isRepeatable: false) ? 0 : 1
            #expect(result.repeatedRequestCount == repeats && result.openedConnectionCount == 1, "\(method)")
            #expect(loop.origin.requests.count { $0.contains("/bad") } == repeats + 1, "\(method)")
        }
    }
}
