internal import EarshotWire

/// Decision about each message of a remote peer: only HELLO and READY are changed, and they alone name the principal.
struct RelayRule {
    /// Decision about a message.
    enum Verdict: Equatable {
        /// The broker gets this head, and the body.
        case forward([UInt8])
        /// The peer gets this head, and the connection ends.
        case refuse([UInt8])
    }

    /// Role of the peer's key, which decides about the protocol that it may speak.
    let role: ClientKey.Role
    /// Principal of the peer's key.
    let principal: PrincipalName

    private static let helloPrefix = Array("HELLO".utf8)
    private static let readyPrefix = Array("READY".utf8)

    /// Returns the decision about a message.
    ///
    /// A HELLO or READY that cannot be decoded is refused here, because the broker would take the connection for one of
    /// its own user.
    ///
    /// - Parameters:
    ///   - isFirst: whether the broker got no message of the peer.
    ///   - proof: secret of the present broker.
    func verdict(on head: [UInt8], isFirst: Bool, proof: GatewayProof) -> Verdict {
        switch role {
        case .client, .node: clientVerdict(head, isFirst: isFirst, proof)
        case .worker: workerVerdict(head, isFirst: isFirst, proof)
        }
    }

    // MARK: Clients

    private func clientVerdict(_ head: [UInt8], isFirst: Bool, _ proof: GatewayProof) -> Verdict {
        if isFirst, case .ready? = try? WorkerMessage(head: head) {
            let advice =
                role == .node
                ? "the key of a cluster serves no schemes: nodes only request bodies"
                : "a key of role client serves no schemes: create one with `earshot key new NAME --role worker`"
            return clientRefusal("not-authorized", advice)
        }
        guard Self.isHello(head) else { return .forward(head) }
        do throws(WireError) {
            guard case .hello(var hello) = try ClientMessage(head: head) else { return .forward(head) }
            guard hello.principal == nil, hello.proof == nil else {
                return clientRefusal(
                    "not-authorized",
                    "the gateway names the principal of a key: remove principal and proof")
            }
            hello.principal = principal
            hello.proof = proof
            return .forward(ClientMessage.hello(hello).encoded())
        } catch {
            // A longer verb that begins like HELLO.
            if error.code == .unknownVerb { return .forward(head) }
            return clientRefusal(error.code.rawValue, error.detail)
        }
    }

    private func clientRefusal(_ code: String, _ detail: String) -> Verdict {
        .refuse(BrokerMessage.error(ErrorReply(code: code, detail: detail)).encoded())
    }

    /// Whether a head is a HELLO, or one that only the decoder distinguishes from it.
    static func isHello(_ head: [UInt8]) -> Bool { head.starts(with: helloPrefix) }

    // MARK: Workers

    private func workerVerdict(_ head: [UInt8], isFirst: Bool, _ proof: GatewayProof) -> Verdict {
        guard head.starts(with: Self.readyPrefix) else {
            guard isFirst else { return .forward(head) }
            return Self.workerRefusal(
                "not-authorized", "a key of role worker requests nothing: send READY EARW/1 first")
        }
        do throws(WireError) {
            guard case .ready(var ready) = try WorkerMessage(head: head) else { return .forward(head) }
            guard ready.principal == nil, ready.proof == nil, ready.supervisorSecret == nil else {
                return Self.workerRefusal(
                    "not-authorized", "the gateway names the principal of a key: remove principal, proof and secret")
            }
            guard Set(ready.schemes).isDisjoint(with: ["http", "https"]) else {
                return Self.workerRefusal("not-a-child", "http and https are for workers on the machine of the bus")
            }
            ready.principal = principal
            ready.proof = proof
            // A process of another machine, without files of this one.
            ready.pid = 0
            ready.needsFileContents = false
            return .forward(WorkerMessage.ready(ready).encoded())
        } catch {
            if error.code == .unknownVerb, !isFirst { return .forward(head) }
            return Self.workerRefusal(error.code.rawValue, error.detail)
        }
    }

    private static func workerRefusal(_ code: String, _ detail: String) -> Verdict {
        .refuse(PoolMessage.error(code: code, detail: detail).encoded())
    }
}
