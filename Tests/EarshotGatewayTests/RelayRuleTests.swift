import EarshotWire
import Testing

@testable import EarshotGateway

/// Changes of messages on their way to the broker.
@Suite struct RelayRuleTests {
    private let proof = GatewayProof(String(repeating: "0a", count: 32)) ?? { preconditionFailure("a valid proof") }()

    private func rule() throws -> RelayRule { RelayRule(principal: try #require(KeyName("laptop")).principal) }

    private func verdict(_ text: String) throws -> RelayRule.Verdict {
        try rule().verdict(on: Array(text.utf8), proof: proof)
    }

    @Test func `HELLO gets principal and proof, and keeps its terms`() throws {
        let text = "HELLO EAR/1\nclient: me\nwindow: 8\nlease: 60\nreplies: 3\nbodies: pull\n"
        guard case .forward(let head) = try verdict(text), case .hello(let hello) = try ClientMessage(head: head) else {
            Issue.record("HELLO was not passed on")
            return
        }
        #expect(hello.principal?.description == "key:laptop")
        #expect(hello.proof == proof)
        #expect(hello.client == "me" && hello.window == 8 && hello.leaseMilliseconds == 60_000)
        #expect(hello.replies == 3 && hello.isPulling)
    }

    @Test(arguments: [
        "FETCH h 1 http://example.org/\n", "BYE\n", "", "\u{0}", "hello EAR/1\n", "HELL", "QUERY ping\nproof: 1\n",
    ])
    func `other messages pass unchanged`(_ text: String) throws {
        #expect(try verdict(text) == .forward(Array(text.utf8)))
    }

    @Test(arguments: [
        ("HELLO EAR/1\nwindow: 8\nprincipal: key:other\n", "not-authorized"),
        ("HELLO EAR/1\nwindow: 8\nproof: \(String(repeating: "0", count: 64))\n", "not-authorized"),
        ("HELLO EAR/1\nwindow: 8\nprincipal: \n", "bad-message"), ("HELLO\n", "bad-message"),
        ("HELLO EAR/9\n", "version"), ("HELLO EAR/1\nwindow: 0\n", "bad-message"), ("HELLO\tEAR/1\n", "bad-message"),
    ])
    func `a HELLO that names a principal or is malformed never reaches the broker`(
        _ text: String, _ code: String
    ) throws {
        guard case .refuse(let head) = try verdict(text), case .error(let reply) = try BrokerMessage(head: head) else {
            Issue.record("HELLO was passed on: \(text)")
            return
        }
        #expect(reply.code == code)
        #expect(reply.verb == "HELLO")
    }

    @Test func `no message of random bytes after HELLO names another principal`() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2_000 {
            var head = Array("HELLO EAR/1\nwindow: 8\n".utf8)
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                let index = Int.random(in: 5..<head.count, using: &generator)
                head[index] = UInt8.random(in: 0...255, using: &generator)
            }
            guard case .forward(let passed) = try rule().verdict(on: head, proof: proof) else { continue }
            if let message = try? ClientMessage(head: passed), case .hello(let hello) = message {
                #expect(hello.principal?.description == "key:laptop")
            }
        }
    }
}
