import Curl
import Foundation
import Testing

@testable import TestPeers

/// Transfers over TLS: certificates of servers and of clients.
@Suite struct TLSTests {
    @Test func `a certificate is believed only if it is trusted and for this name`() throws {
        let tls = try TLSOrigin()
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolveEntries = ["localhost:\(tls.port):127.0.0.1"]
        // X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT
        #expect(try loop.fetch(request)?.failure == .certificateRejected(18))

        request.caCertificates = try contents(tls.certificate)
        let sink = RecordingSink()
        let result = try #require(try loop.fetch(request, sink: sink))
        #expect(result.failure == nil, "\(result)")
        #expect(result.status == 200)
        #expect(!sink.body.isEmpty)

        request.url = "https://other.test:\(tls.port)/"
        request.resolveEntries = ["other.test:\(tls.port):127.0.0.1"]
        // libcurl refuses the host, and leaves the result as it was before the verification.
        let otherHost: Set<TransferFailure?> = [.certificateRejected(0), .certificateRejected(1)]
        #expect(otherHost.contains(try loop.fetch(request)?.failure))
        request.caCertificates = nil
        request.caFile = tls.certificate
        #expect(otherHost.contains(try loop.fetch(request)?.failure))
    }

    @Test func `an unverified connection serves no verified request`() throws {
        let tls = try TLSOrigin()
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://other.test:\(tls.port)/")
        request.resolveEntries = ["+other.test:\(tls.port):127.0.0.1"]
        for _ in 0..<2 {
            request.verifiesServer = false
            let unverified = try #require(try loop.fetch(request))
            #expect(unverified.failure == nil && unverified.status == 200, "\(unverified)")
            // Neither the connection, nor its TLS session, nor an option of its handle is used again.
            request.verifiesServer = true
            #expect(try loop.fetch(request)?.failure == .certificateRejected(18))
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `a server that refuses the client certificate, or misses it, is told apart`(version: String) throws {
        let tls = try TLSOrigin(arguments: ["-Verify", "1", "-verify_return_error", version])
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolveEntries = ["+localhost:\(tls.port):127.0.0.1"]
        request.caCertificates = try contents(tls.certificate)
        let missing = try #require(try loop.fetch(request))
        // TLS 1.2 has no alert for a missing certificate: the handshake fails.
        #expect(missing.failure == (version == "-tls1_3" ? .clientCertificateRefused : .tlsAlert(40)), "\(missing)")
        // The server does not trust this certificate.
        request.clientCertificate = try contents(tls.certificate)
        request.clientKey = try contents(tls.key)
        let refused = try #require(try loop.fetch(request))
        #expect(refused.failure == .clientCertificateRefused, "\(refused)")
    }

    @Test func `an encrypted key is a TLS failure, and nobody is asked for its passphrase`() throws {
        let tls = try TLSOrigin()
        let loop = try CurlTestLoop(origin: LoopbackOrigin(""))
        var request = TransferRequest(url: "https://localhost:\(tls.port)/")
        request.resolveEntries = ["+localhost:\(tls.port):127.0.0.1"]
        request.caCertificates = try contents(tls.certificate)
        request.clientCertificate = try contents(tls.certificate)
        request.clientKey = try tls.encryptedKey()
        #expect(try loop.fetch(request)?.failure == .tlsFailed)
    }

    private func contents(_ path: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: path)))
    }
}
