import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Fingerprints of requests with another content or another handling.
@Suite struct FingerprintTests {
    private static func fingerprint(_ lines: String) throws -> UInt64 {
        let message = try ClientMessage(head: Array("FETCH h 1 http://a/\n\(lines)\n".utf8))
        guard case .fetch(let fetch) = message else { preconditionFailure("no FETCH") }
        return Fingerprint(of: fetch, body: nil).hash64
    }

    @Test(arguments: [
        "method: HEAD", "coalesce: no", "redirect: manual", "cache: reload", "proxy: none", "ca-file: /a",
        "digest: sha-256=0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "client-certificate: /a",
        "client-key: /a", "decode: no", "cookies: yes", "warm: yes", "durable: yes", "\naccept: a",
    ])
    func `another content is another request`(line: String) throws {
        let plain = try Self.fingerprint("")
        let other = try Self.fingerprint(line)
        #expect(other != plain)
        #expect(try Self.fingerprint(line) == other)
        let both = try Self.fingerprint(line.hasPrefix("\n") ? "method: PUT" + line : "method: PUT\n" + line)
        #expect(line.hasPrefix("method") || both != other)
    }

    @Test(arguments: [
        "priority: low", "timeout: 1", "deadline: 1", "max-bytes: 1", "retries: 0", "progress: 50", "stream: yes",
        "deliver: file", "take: yes", "replace: yes", "subscribe: no", "novel: 1",
    ])
    func `another handling is the same request`(line: String) throws {
        let plain = try Self.fingerprint("")
        #expect(try Self.fingerprint(line) == plain)
    }
}
