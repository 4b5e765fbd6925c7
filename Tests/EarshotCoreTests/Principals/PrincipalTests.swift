import EarshotWire
import Testing

@testable import EarshotCore

/// Principals of sessions: those of connections, those that HELLO names, and their proof.
struct PrincipalTests {
    private static let proof = GatewayProof(String(repeating: "0123456789abcdef", count: 4))!
    private static let other = GatewayProof(String(repeating: "0123456789abcdee", count: 4))!
    private static let laptop = PrincipalName("key:laptop")!
    private static let user = PrincipalName("uid:33")!

    /// Says HELLO over a new connection.
    private func hello(
        _ rig: inout CoreRig, _ number: UInt64, user: PrincipalName? = nil, isGateway: Bool = false,
        _ change: (inout Hello) -> Void
    ) -> [BrokerMessage] {
        let id = ClientID(rawValue: number)
        rig.pass { rig in
            rig.core.clientConnected(
                id, token: CoreRig.token(of: id), user: user, isGateway: isGateway)
            var hello = Hello()
            change(&hello)
            rig.send(.hello(hello), by: id)
        }
        #expect(rig.core.audit() == [])
        return rig.replies(to: id)
    }

    private func refusal(_ code: String, _ detail: String) -> BrokerMessage {
        .error(ErrorReply(code: code, detail: detail))
    }

    private var notAuthorized: BrokerMessage {
        refusal("not-authorized", "only the gateway and the administrator name another principal")
    }

    private func isPulling(_ replies: [BrokerMessage]) -> Bool? {
        if case .welcome(let welcome) = replies.first { welcome.pullsBodies && welcome.spoolPath == nil } else { nil }
    }

    @Test func `a session belongs to the principal of its connection, and only the administrator's receives paths`() {
        var rig = CoreRig()
        #expect(isPulling(hello(&rig, 1) { _ in }) == false)
        #expect(rig.core.principal(of: ClientID(rawValue: 1)) == nil)
        #expect(isPulling(hello(&rig, 2, user: Self.user) { _ in }) == true)
        #expect(rig.core.principal(of: ClientID(rawValue: 2)) == Self.user)
    }

    @Test func `the gateway's proof names any key, and a wrong or missing one none`() {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        for user in [nil, Self.user] {
            let replies = hello(&rig, user == nil ? 1 : 2, user: user) {
                $0.principal = Self.laptop
                $0.proof = Self.proof
            }
            #expect(isPulling(replies) == true)
            #expect(rig.core.principal(of: ClientID(rawValue: user == nil ? 1 : 2)) == Self.laptop)
        }
        let wrong = hello(&rig, 3) {
            $0.principal = Self.laptop
            $0.proof = Self.other
        }
        #expect(wrong == [notAuthorized])
        let missing = hello(&rig, 4, user: Self.user) { $0.principal = Self.laptop }
        #expect(missing == [notAuthorized])
        let own = hello(&rig, 5, user: Self.user) { $0.principal = Self.user }
        #expect(own == [notAuthorized])
        #expect(
            hello(&rig, 6) { $0.proof = Self.proof }
                == [refusal("bad-message", "a proof is for a HELLO that names its principal")])
    }

    @Test func `a proof names no local user`() {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        for (number, name) in ["uid:0", "uid:33", "keys", "key", "root"].enumerated() {
            let replies = hello(&rig, UInt64(number + 1), isGateway: number % 2 == 0) {
                $0.principal = PrincipalName(name)
                $0.proof = Self.proof
            }
            #expect(isPulling(replies) == nil, "\(name)")
        }
    }

    @Test func `the door's proof names local users and the bus's own one, none with the rights of the administrator`()
        throws
    {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        rig.core.doorEventReceived(.doorProof(Self.other))
        let own = hello(&rig, 1, isGateway: true) {
            $0.proof = Self.other
            $0.hasUserRights = true
        }
        #expect(isPulling(own) == false)
        #expect(rig.core.principal(of: ClientID(rawValue: 1)) == nil)
        let named = hello(&rig, 2, isGateway: true) {
            $0.proof = Self.other
            $0.principal = Self.user
        }
        #expect(isPulling(named) == false)
        #expect(rig.core.principal(of: ClientID(rawValue: 2)) == Self.user)
        let setting = try #require(SettingWords(["origin-limit", "2"]))
        rig.pass { $0.send(.changeSetting(setting), by: ClientID(rawValue: 1)) }
        guard case .error(let error)? = rig.replies(to: ClientID(rawValue: 1)).last else {
            Issue.record("the door has changed a setting")
            return
        }
        #expect(error.code == "not-authorized")
        let refused: [(inout Hello) -> Void] = [
            { $0.hasUserRights = true }, { _ in }, { $0.proof = Self.other }, { $0.principal = Self.user },
            { ($0.proof, $0.hasUserRights) = (Self.proof, true) },
            { ($0.proof, $0.principal) = (Self.proof, Self.user) },
            { ($0.proof, $0.principal) = (Self.other, Self.laptop) },
            { ($0.proof, $0.principal) = (Self.other, PrincipalName("administrator")) },
        ]
        for (number, change) in refused.enumerated() {
            #expect(isPulling(hello(&rig, UInt64(number + 3), isGateway: true, change)) == nil, "\(number)")
        }
        // Another user who had stolen the proof would still be another user.
        let thief = hello(&rig, 20, user: PrincipalName("uid:34")) {
            $0.proof = Self.other
            $0.principal = Self.user
        }
        #expect(thief == [notAuthorized])
    }

    @Test func `a connection of the gateway has no right of its user, with any kind of HELLO`() throws {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        let names = [nil, "key:laptop", "node:shop", "uid:0", "uid:33", "key", "root"]
            .map { $0.flatMap { PrincipalName($0) } }
        let setting = try #require(SettingWords(["slots", "3"]))
        var number: UInt64 = 0
        var opened = 0
        for name in names {
            for proof in [nil, Self.proof, Self.other] {
                for lease in [0, 60_000] {
                    number += 1
                    let replies = hello(&rig, number, isGateway: true) {
                        ($0.principal, $0.proof, $0.leaseMilliseconds) = (name, proof, lease)
                    }
                    let isOpen = isPulling(replies) != nil
                    #expect(
                        isOpen == (name?.canBeNamedByGateway == true && proof == Self.proof),
                        "\(String(describing: name))")
                    opened += isOpen ? 1 : 0
                    let id = ClientID(rawValue: number)
                    rig.pass { rig in
                        rig.send(.changeSetting(setting), by: id)
                        rig.send(.bye, by: id)
                        rig.send(.hello(Hello()), by: id)
                        rig.send(.changeSetting(setting), by: id)
                    }
                    #expect(!rig.replies(to: id).contains { if case .welcome = $0 { true } else { false } })
                    #expect(rig.core.settings[.slots] != 3)
                }
            }
        }
        #expect((number, opened) == (42, 4))
        #expect(rig.core.audit() == [])
    }

    @Test func `a token gives a connection of the gateway no session of the administrator`() {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        _ = hello(&rig, 1) { $0.leaseMilliseconds = 60_000 }
        rig.pass { $0.core.clientLost(ClientID(rawValue: 1), now: $0.now) }
        let replies = hello(&rig, 2, isGateway: true) {
            $0.leaseMilliseconds = 60_000
            $0.token = CoreRig.token(of: ClientID(rawValue: 1))
        }
        #expect(isPulling(replies) == nil)
    }

    @Test func `a session that is away ends when its key is no longer valid, and so do its requests`() {
        var rig = CoreRig()
        rig.core.shellFeatures.gatewayProof = Self.proof
        func open(_ number: UInt64, _ name: PrincipalName?, isGateway: Bool) {
            _ = hello(&rig, number, isGateway: isGateway) {
                $0.leaseMilliseconds = 60_000
                $0.principal = name
                $0.proof = isGateway ? Self.proof : nil
            }
            let id = ClientID(rawValue: number)
            rig.pass { $0.fetch("h\(number)", "1", "http://h\(number)/", by: id) }
            rig.pass { $0.core.clientLost(id, now: $0.now) }
        }
        open(1, Self.laptop, isGateway: true)
        open(2, PrincipalName("key:other"), isGateway: true)
        open(3, PrincipalName("node:shop"), isGateway: true)
        // The administrator acts for a key, perhaps to remove its requests.
        open(4, Self.laptop, isGateway: false)
        #expect(rig.core.ledger.requests.pending == 4)
        rig.pass {
            $0.core.gatewayKeysChanged(Set([Self.laptop, PrincipalName("key:other")].compactMap(\.self)), now: $0.now)
        }
        #expect(rig.core.ledger.requests.pending == 4)
        rig.pass { $0.core.gatewayKeysChanged(Set([PrincipalName("key:other")].compactMap(\.self)), now: $0.now) }
        #expect(rig.core.ledger.requests.pending == 3)
        // A connection that is lost only now does not leave a session either.
        open(5, Self.laptop, isGateway: true)
        #expect(rig.core.ledger.requests.pending == 3)
        #expect(rig.core.audit() == [])
    }

    @Test func `without a gateway every proof is refused`() {
        var rig = CoreRig()
        let replies = hello(&rig, 1) {
            $0.principal = Self.laptop
            $0.proof = Self.proof
        }
        #expect(replies == [notAuthorized])
    }

    @Test func `the administrator acts for a principal and keeps its paths`() {
        var rig = CoreRig()
        #expect(isPulling(hello(&rig, 1) { $0.principal = Self.laptop }) == false)
        #expect(rig.core.principal(of: ClientID(rawValue: 1)) == Self.laptop)
    }

    @Test func `a token resumes only a session of the same principal`() throws {
        var rig = CoreRig()
        _ = hello(&rig, 1, user: Self.user) { $0.leaseMilliseconds = 60_000 }
        rig.pass { $0.core.clientLost(ClientID(rawValue: 1), now: $0.now) }
        let token = CoreRig.token(of: ClientID(rawValue: 1))
        func isResumed(_ number: UInt64, _ user: PrincipalName?) throws -> Bool {
            let replies = hello(&rig, number, user: user) {
                $0.leaseMilliseconds = 60_000
                $0.token = token
            }
            guard case .welcome(let welcome) = try #require(replies.first) else { return false }
            return welcome.lastReceivedNumber != nil
        }
        #expect(try !isResumed(2, nil))
        #expect(try !isResumed(3, PrincipalName("uid:34")))
        #expect(try isResumed(4, Self.user))
    }

    @Test func `settings and files of certificates are reserved for the administrator`() throws {
        var rig = CoreRig()
        let setting = try #require(SettingWords(["slots", "3"]))
        let (own, other) = (ClientID(rawValue: 1), ClientID(rawValue: 2))
        _ = hello(&rig, 1) { _ in }
        _ = hello(&rig, 2, user: Self.user) { _ in }
        for (id, isPermitted) in [(own, true), (other, false)] {
            rig.pass { rig in
                rig.send(.changeSetting(setting), by: id)
                rig.fetch("h\(id.rawValue)", "1", "http://h/", by: id) { $0.options.route.caFile = "/ca" }
                rig.fetch("h\(id.rawValue)", "2", "http://h/", by: id) { $0.options.route.clientCertificate = "/cert" }
                rig.fetch("h\(id.rawValue)", "3", "http://h/", by: id) { $0.options.route.clientKey = "/key" }
                rig.fetch("h\(id.rawValue)", "4", "http://h/", by: id)
            }
            let refused = rig.replies(to: id).count {
                if case .error(let reply) = $0 { reply.code == "not-authorized" } else { false }
            }
            #expect(refused == (isPermitted ? 0 : 4))
        }
        #expect(rig.core.ledger.requests.pending == 5)
        #expect(rig.core.audit() == [])
    }

    @Test func `BYE returns a connection to its own principal`() {
        var rig = CoreRig()
        let id = ClientID(rawValue: 1)
        _ = hello(&rig, 1) { $0.principal = Self.laptop }
        rig.pass {
            $0.send(.bye, by: id)
            $0.send(.hello(Hello()), by: id)
        }
        #expect(rig.core.principal(of: id) == nil)
    }
}
