import EarshotWire
import Testing

@testable import EarshotGateway

/// Changes of messages on their way to the broker.
@Suite struct RelayRuleTests {
    private let proof = GatewayProof(String(repeating: "0a", count: 32)) ?? { preconditionFailure("a valid proof") }()

    private func rule(_ role: ClientKey.Role = .client) throws -> RelayRule {
        RelayRule(role: role, principal: try #require(KeyName("laptop")).principal)
    }

    private func verdict(
        _ text: String, of role: ClientKey.Role = .client, isFirst: Bool = true
    ) throws -> RelayRule.Verdict {
        try rule(role).verdict(on: Array(text.utf8), isFirst: isFirst, proof: proof)
    }

    @Test func `HELLO gets principal and proof, and keeps its terms`() throws {
        let text = "HELLO EAR/1\nwindow: 8\nlease: 60\nunanswered: 3\nbodies: pull\n"
        guard case .forward(let head) = try verdict(text), case .hello(let hello) = try ClientMessage(head: head) else {
            Issue.record("HELLO was not passed on")
            return
        }
        #expect(hello.principal?.description == "key:laptop")
        #expect(hello.proof == proof)
        #expect(hello.window == 8 && hello.leaseMilliseconds == 60_000)
        #expect(hello.firstUnansweredNumber == 3 && hello.pullsBodies)
    }

    @Test func `the key of a cluster is that of clients with the principal of its nodes`() throws {
        let name = try #require(KeyName(cluster: "shop"))
        let rule = RelayRule(
            role: .node, principal: ClientKey(name: name, publicKey: "A", role: .node).principal)
        func verdict(_ text: String) -> RelayRule.Verdict {
            rule.verdict(on: Array(text.utf8), isFirst: true, proof: proof)
        }
        guard case .forward(let head) = verdict("HELLO EAR/1\nwindow: 8\nbodies: pull\n"),
            case .hello(let hello) = try ClientMessage(head: head)
        else {
            Issue.record("HELLO was not passed on")
            return
        }
        #expect(hello.principal?.description == "node:shop")
        #expect(hello.proof == proof && hello.pullsBodies)
        guard case .refuse(let refusal) = verdict("READY EARW/1\nslots: 1\nschemes: thumb\n"),
            case .error(let reply) = try BrokerMessage(head: refusal)
        else {
            Issue.record("READY was passed on")
            return
        }
        #expect(reply.code == "not-authorized" && reply.detail?.contains("the key of a cluster") == true)
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
    }

    @Test func `no message of random bytes after HELLO names another principal`() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2_000 {
            var head = Array("HELLO EAR/1\nwindow: 8\n".utf8)
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                let index = Int.random(in: 5..<head.count, using: &generator)
                head[index] = UInt8.random(in: 0...255, using: &generator)
            }
            guard case .forward(let passed) = try rule().verdict(on: head, isFirst: true, proof: proof) else {
                continue
            }
            if let message = try? ClientMessage(head: passed), case .hello(let hello) = message {
                #expect(hello.principal?.description == "key:laptop")
            }
        }
    }

    // MARK: Roles

    @Test func `READY of a worker gets principal and proof, and no right to files`() throws {
        let text = "READY EARW/1\nslots: 3\nschemes: x y\npid: 7\nfiles: yes\ndrain: yes\n"
        guard case .forward(let head) = try verdict(text, of: .worker),
            case .ready(let ready) = try WorkerMessage(head: head)
        else {
            Issue.record("READY was not passed on")
            return
        }
        #expect(ready.principal?.description == "key:laptop")
        #expect(ready.proof == proof)
        #expect(ready.slots == 3 && ready.schemes == ["x", "y"] && ready.acceptsDrain)
        #expect(ready.pid == 0 && !ready.needsFileContents)
    }

    @Test(arguments: ["PONG\n", "DONE a.1.1 200\n", "BYE\n", "REA", "READYX\n", "", "HELLO EAR/1\nwindow: 1\n"])
    func `other messages of a worker pass unchanged after the first, which must be READY`(_ text: String) throws {
        #expect(try verdict(text, of: .worker, isFirst: false) == .forward(Array(text.utf8)))
        guard case .refuse(let head) = try verdict(text, of: .worker),
            case .error(let code, let detail) = try PoolMessage(head: head)
        else {
            Issue.record("the first message was passed on: \(text)")
            return
        }
        #expect(code == (text.hasPrefix("READY") ? "unknown-verb" : "not-authorized"))
        #expect(detail != nil)
    }

    private static let secret = String(repeating: "0", count: 64)

    @Test(arguments: [
        ("READY EARW/1\nslots: 1\nschemes: x\nprincipal: key:other\n", "not-authorized"),
        ("READY EARW/1\nslots: 1\nschemes: x\nproof: \(secret)\n", "not-authorized"),
        ("READY EARW/1\nslots: 1\nschemes: x\nsecret: s\n", "not-authorized"),
        ("READY EARW/1\nslots: 1\n", "not-a-child"), ("READY EARW/1\nslots: 1\nschemes: x http\n", "not-a-child"),
        ("READY EARW/1\nslots: 1\nschemes: https\n", "not-a-child"), ("READY EARW/1\n", "bad-message"),
        ("READY EARW/9\nslots: 1\n", "version"), ("READY\n", "bad-message"), ("READY\tEARW/1\n", "bad-message"),
    ])
    func `a READY for http, of another principal or malformed never reaches the broker`(
        _ text: String, _ code: String
    ) throws {
        for isFirst in [true, false] {
            guard case .refuse(let head) = try verdict(text, of: .worker, isFirst: isFirst),
                case .error(let reported, _) = try PoolMessage(head: head)
            else {
                Issue.record("READY was passed on: \(text)")
                return
            }
            #expect(reported == code)
        }
    }

    @Test func `a client cannot send READY`() throws {
        guard case .refuse(let head) = try verdict("READY EARW/1\nslots: 1\nschemes: x\n"),
            case .error(let reply) = try BrokerMessage(head: head)
        else {
            Issue.record("READY was passed on")
            return
        }
        #expect(reply.code == "not-authorized")
        #expect(reply.detail?.contains("--role worker") == true)
    }
}
