import CLibCurl
import Glibc
import Testing

@testable import Curl
@testable import TestPeers

/// Addresses that a sink is asked to admit before anything is sent.
@Suite struct ResolvedAddressTests {
    private static let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    /// libcurl spends half of it on each address. A test waits a minute.
    private static let connectTimeout = Duration.seconds(600)

    @Test func `an address is asked about before it is connected to, and before each request`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        let first = RecordingSink()
        let second = RecordingSink()
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: first)?.failure == nil)
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: second)?.failure == nil)
        #expect(first.requestedAddresses == ["127.0.0.1", "127.0.0.1"])
        #expect(second.requestedAddresses == ["127.0.0.1"], "the connection stands")
        #expect(origin.accepted == 1)
    }

    @Test func `what is not admitted is not connected to`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: sink)?.failure == .addressRefused)
        #expect(origin.accepted == 0)
    }

    @Test func `what is not admitted any more is not asked over a connection that stands`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: sink)?.failure == .addressRefused)
        #expect(origin.requests.count == 1)
    }

    @Test func `the next address of a name takes the place of one that is not admitted`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.2", "::1"]
        var request = TransferRequest(url: "http://a.example:\(origin.port)/file")
        request.resolveEntries = ["a.example:\(origin.port):[::1],127.0.0.2,127.0.0.1"]
        #expect(try loop.fetch(request, sink: sink)?.failure == nil)
        #expect(Set(sink.requestedAddresses) == ["127.0.0.2", "::1", "127.0.0.1"])
    }

    @Test func `an address that is admitted and refuses is no refusal of the sink`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        var request = TransferRequest(url: "http://a.example:\(origin.port)/file")
        request.resolveEntries = ["a.example:\(origin.port):127.0.0.1,127.0.0.3"]
        #expect(try loop.fetch(request, sink: sink)?.failure == .connectRefused)
    }

    @Test(
        "an address that refuses at once is followed by the next one at once",
        arguments: [
            "127.0.0.2,127.0.0.1", "127.0.0.2,127.0.0.3,127.0.0.1", "127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.1",
            "[::1],127.0.0.2,127.0.0.3,127.0.0.1",
        ])
    func refusedAtOnce(addresses: String) throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try CurlTestLoop(origin: origin)
        var request = TransferRequest(url: "http://a.example:\(origin.port)/file")
        request.resolveEntries = ["a.example:\(origin.port):\(addresses)"]
        request.connectTimeout = Self.connectTimeout
        let sink = RecordingSink()
        #expect(try loop.fetch(request, sink: sink)?.failure == nil)
        #expect(sink.requestedAddresses.count == addresses.split(separator: ",").count + 1, "each address once")
    }

    @Test func `a connected transfer leaves the number of its refused socket to the next transfer`() {
        let events = CallbackEvents()
        events.recordOpenedSocket(12, by: 1)
        events.recordInterest(descriptor: 12, what: CURL_POLL_OUT, owner: 1)
        events.recordInterest(descriptor: 12, what: CURL_POLL_REMOVE, owner: 1)
        events.recordOpenedSocket(12, by: 2)
        events.recordInterest(descriptor: 12, what: CURL_POLL_OUT, owner: 2)
        events.recordOpenedSocket(13, by: 1)
        events.recordInterest(descriptor: 13, what: CURL_POLL_OUT, owner: 1)
        #expect(events.takeTransfersWithFailedAttempts() == [1])
        events.recordConnected([12, 13], by: 1)
        events.recordInterest(descriptor: 13, what: CURL_POLL_REMOVE, owner: 1)
        events.recordInterest(descriptor: 12, what: CURL_POLL_REMOVE, owner: 2)
        #expect(events.takeTransfersWithFailedAttempts() == [2])
    }

    @Test func `addresses that refuse at once do not delay the failure`() throws {
        let (descriptor, port) = try Loopback.bind()
        defer { close(descriptor) }
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "http://a.example:\(port)/")
        request.resolveEntries = ["a.example:\(port):127.0.0.1,127.0.0.2,127.0.0.3"]
        request.connectTimeout = Self.connectTimeout
        #expect(try loop.fetch(request)?.failure == .connectRefused)
    }

    @Test func `an address that refuses late is followed by the next one at once`() throws {
        let (listener, port) = try Loopback.listen(backlog: 0)
        // A listener's queue holds one more than its backlog. The kernel drops the next SYN, and the client sends it
        // again after one second.
        let waiting = (0..<4).map { _ in Loopback.connect(port: port) }
        defer { for descriptor in waiting { close(descriptor) } }
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "http://a.example:\(port)/")
        request.resolveEntries = ["a.example:\(port):127.0.0.1,127.0.0.2,127.0.0.3"]
        request.connectTimeout = Self.connectTimeout
        _ = try loop.start(request, sink: RecordingSink())
        #expect(loop.run { !$0.newDescriptors.isEmpty })
        close(listener)
        #expect(loop.run { !$0.finished.isEmpty })
        #expect(loop.finished.first?.result.failure == .connectRefused)
    }
}
