import Curl
import Foundation
import Testing

@Suite struct TLSTests {
    @Test func `a certificate is believed only if it is trusted and for this name`() throws {
        let tls = try TLSOrigin()
        let loop = try TestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolve = ["+localhost:\(tls.port):127.0.0.1"]
        #expect(try loop.fetch(request)?.failure == .tls)

        request.caCertificates = try contents(tls.certificate)
        let sink = RecordingSink()
        let result = try #require(try loop.fetch(request, sink: sink))
        #expect(result.failure == nil, "\(result)")
        #expect(result.status == 200)
        #expect(!sink.body.isEmpty)

        request.url = "https://other.test:\(tls.port)/"
        request.resolve = ["+other.test:\(tls.port):127.0.0.1"]
        #expect(try loop.fetch(request)?.failure == .tls)
        request.caCertificates = nil
        request.caFile = tls.certificate
        #expect(try loop.fetch(request)?.failure == .tls)
    }

    @Test func `an encrypted key is a TLS failure, and nobody is asked for its passphrase`() throws {
        let tls = try TLSOrigin()
        let loop = try TestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolve = ["+localhost:\(tls.port):127.0.0.1"]
        request.caCertificates = try contents(tls.certificate)
        request.clientCertificate = try contents(tls.certificate)
        request.clientKey = try tls.encryptedKey()
        #expect(try loop.fetch(request)?.failure == .tls)
    }

    private func contents(_ path: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: path)))
    }
}
