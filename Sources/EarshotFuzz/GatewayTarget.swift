internal import EarshotWire

@testable internal import EarshotClient
@testable internal import EarshotGateway

/// Fuzz target: the input of a gateway. The first byte selects the part:
///
/// - `0`, `1`: a message of a remote client or worker, for the rule that decides about it.
/// - `2`: the text of an address, a name, an expiry or a proof.
/// - `3`: a key file of a client.
/// - `4`: connections at the admission gate.
/// - `5`: bytes of clients in the memory of the relay.
enum GatewayTarget {
    private static let keyName = KeyName("laptop") ?? { preconditionFailure("a valid name") }()
    private static let gatewayProof =
        GatewayProof(String(repeating: "0a", count: 32)) ?? { preconditionFailure("a valid proof") }()

    static func run(_ bytes: [UInt8]) {
        var choices = ByteSource(bytes)
        let kind = choices.byte()
        switch kind % 6 {
        case 0: checkClientMessage(isFirst: choices.boolean(), head: choices.takeRemainingBytes())
        case 1: checkWorkerMessage(isFirst: choices.boolean(), head: choices.takeRemainingBytes())
        case 2: checkTextParsers(String(decoding: choices.takeRemainingBytes(), as: UTF8.self))
        case 3: checkKeyFile(choices.takeRemainingBytes())
        case 4: AdmissionTarget.run(&choices)
        default: RelayMemoryTarget.run(&choices)
        }
    }

    // MARK: Messages

    private static func relayVerdict(role: ClientKey.Role, isFirst: Bool, head: [UInt8]) -> RelayRule.Verdict {
        RelayRule(role: role, principal: keyName.principal).verdict(on: head, isFirst: isFirst, proof: gatewayProof)
    }

    /// The broker takes a HELLO only with the principal of the key.
    private static func checkClientMessage(isFirst: Bool, head: [UInt8]) {
        let original = try? ClientMessage(head: head)
        switch relayVerdict(role: .client, isFirst: isFirst, head: head) {
        case .refuse(let reply):
            guard case .error? = try? BrokerMessage(head: reply) else {
                preconditionFailure("a refusal that is no ERROR")
            }
        case .forward(let passed):
            guard case .hello(let hello)? = try? ClientMessage(head: passed) else {
                precondition(passed == head, "a message other than HELLO was changed")
                if head.starts(with: "HELLO".utf8) { checkUnknownVerb(head) }
                return
            }
            precondition(
                hello.principal == keyName.principal && hello.proof == gatewayProof, "the principal of another")
            guard case .hello(var own) = original else { preconditionFailure("HELLO of the gateway itself") }
            precondition(own.principal == nil && own.proof == nil, "a HELLO that names a principal")
            (own.principal, own.proof) = (hello.principal, hello.proof)
            precondition(own == hello, "the gateway changed \(own)")
        }
    }

    private static func checkUnknownVerb(_ head: [UInt8]) {
        do throws(WireError) {
            _ = try ClientMessage(head: head)
        } catch {
            precondition(error.code == .unknownVerb, "a malformed HELLO is passed on")
        }
    }

    private static func checkWorkerMessage(isFirst: Bool, head: [UInt8]) {
        let original = try? WorkerMessage(head: head)
        switch relayVerdict(role: .worker, isFirst: isFirst, head: head) {
        case .refuse(let reply):
            guard case .error? = try? PoolMessage(head: reply) else {
                preconditionFailure("a refusal that is no ERROR")
            }
        case .forward(let passed):
            guard case .ready(let ready)? = try? WorkerMessage(head: passed) else {
                precondition(passed == head && !isFirst, "a message other than READY was changed, or is the first one")
                if case .ready? = original { preconditionFailure("a READY that the gateway made illegible") }
                return
            }
            precondition(
                ready.principal == keyName.principal && ready.proof == gatewayProof && ready.supervisorSecret == nil,
                "the principal of another")
            precondition(ready.pid == 0 && !ready.needsFileContents, "a process of this machine")
            precondition(!ready.schemes.contains { $0 == "http" || $0 == "https" }, "a worker for http")
            guard case .ready(var own) = original else { preconditionFailure("READY of the gateway itself") }
            precondition(
                own.principal == nil && own.proof == nil && own.supervisorSecret == nil, "a READY with a principal")
            (own.principal, own.proof, own.pid, own.needsFileContents) = (ready.principal, ready.proof, 0, false)
            precondition(own == ready, "the gateway changed \(own)")
        }
    }

    // MARK: Texts

    private static func checkTextParsers(_ text: String) {
        if let address = GatewayAddress(text) {
            precondition(GatewayAddress(address.description) == address, "\(address) is read again as another")
        }
        if let address = NetworkAddress(text) {
            precondition(NetworkAddress(address.description) == address, "\(address) is read again as another")
        }
        if let proof = GatewayProof(text) {
            precondition(proof.description == text, "a proof that is read again as another")
        }
        if let name = KeyName(text) {
            precondition(name.principal.description == "key:" + text && text.utf8.count <= 60, "\(name) is no name")
        }
        if let expiry = KeyExpiry(text) { checkExpiry(expiry, text) }
        _ = BusEndpoint.words(text)
    }

    /// Compares an expiry with another formula of the Gregorian calendar: eras of 400 years that begin in March.
    private static func checkExpiry(_ expiry: KeyExpiry, _ text: String) {
        let parts = text.split { !"0123456789".contains($0) }.compactMap { Int64($0) } + [0, 0, 0]
        let (month, day) = (parts[1], parts[2])
        let year = parts[0] - (month <= 2 ? 1 : 0)
        let ofYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        let ofEra = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + ofYear
        let days = year / 400 * 146_097 + ofEra - 719_468
        let seconds = days * 86_400 + parts[3] * 3_600 + parts[4] * 60 + parts[5]
        precondition(seconds == expiry.secondsSince1970 && expiry.description == text, "\(text) is \(seconds)")
    }

    private static func checkKeyFile(_ bytes: [UInt8]) {
        for (name, value) in BusKey.quotedValues(in: String(decoding: bytes, as: UTF8.self)) {
            precondition(!name.contains(where: \.isNewline) && !value.contains(where: \.isNewline), "more than a line")
        }
    }
}
