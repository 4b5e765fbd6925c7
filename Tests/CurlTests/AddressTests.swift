import Curl
import Testing

/// Whom a sink is asked about before anything is sent.
@Suite struct AddressTests {
    private static let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    @Test func `an address is asked about before it is connected to, and before each request`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try TestLoop(origin: origin)
        let first = RecordingSink()
        let second = RecordingSink()
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: first)?.failure == nil)
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: second)?.failure == nil)
        #expect(first.askedAddresses == ["127.0.0.1", "127.0.0.1"])
        #expect(second.askedAddresses == ["127.0.0.1"], "the connection stands")
        #expect(origin.accepted == 1)
    }

    @Test func `what is not admitted is not connected to`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try TestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: sink)?.failure == .addressRefused)
        #expect(origin.accepted == 0)
    }

    @Test func `what is not admitted any more is not asked over a connection that stands`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try TestLoop(origin: origin)
        #expect(try loop.fetch(TransferRequest(url: loop.url))?.failure == nil)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        #expect(try loop.fetch(TransferRequest(url: loop.url), sink: sink)?.failure == .addressRefused)
        #expect(origin.requests.count == 1)
    }

    @Test func `the next address of a name takes the place of one that is not admitted`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try TestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.2", "::1"]
        var request = TransferRequest(url: "http://a.example:\(origin.port)/file")
        request.resolve = ["a.example:\(origin.port):[::1],127.0.0.2,127.0.0.1"]
        #expect(try loop.fetch(request, sink: sink)?.failure == nil)
        #expect(Set(sink.askedAddresses) == ["127.0.0.2", "::1", "127.0.0.1"])
    }

    @Test func `an address that is admitted and refuses is no refusal of the sink`() throws {
        let origin = try LoopbackOrigin(Self.answer)
        let loop = try TestLoop(origin: origin)
        let sink = RecordingSink()
        sink.refusedAddresses = ["127.0.0.1"]
        var request = TransferRequest(url: "http://a.example:\(origin.port)/file")
        request.resolve = ["a.example:\(origin.port):127.0.0.1,127.0.0.3"]
        #expect(try loop.fetch(request, sink: sink)?.failure == .connectRefused)
    }
}
