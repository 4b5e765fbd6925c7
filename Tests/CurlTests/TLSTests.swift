import Curl
import Testing

@Suite struct TLSTests {
    @Test func `a certificate is believed only if it is trusted and for this name`() throws {
        let tls = try TLSOrigin()
        let loop = try TestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolve = ["+localhost:\(tls.port):127.0.0.1"]
        #expect(try loop.fetch(request)?.failure == .tls)

        request.caFile = tls.certificate
        let sink = RecordingSink()
        let result = try #require(try loop.fetch(request, sink: sink))
        #expect(result.failure == nil, "\(result)")
        #expect(result.status == 200)
        #expect(!sink.body.isEmpty)

        request.url = "https://other.test:\(tls.port)/"
        request.resolve = ["+other.test:\(tls.port):127.0.0.1"]
        #expect(try loop.fetch(request)?.failure == .tls)
    }
}
