internal import EarshotWire

/// Decision about each message of a remote client: only HELLO is changed, and it alone names the principal.
struct RelayRule {
    /// What happens to a message.
    enum Verdict: Equatable {
        /// The broker gets this head, and the body.
        case forward([UInt8])
        /// The client gets this head, and the connection ends.
        case refuse([UInt8])
    }

    /// Principal of the client's key.
    let principal: PrincipalName

    private static let hello = Array("HELLO".utf8)

    /// Returns the decision about a message.
    ///
    /// A HELLO that cannot be decoded is refused here, because the broker would take the connection for one of its own
    /// user.
    ///
    /// - Parameter proof: secret of the present broker.
    func verdict(on head: [UInt8], proof: GatewayProof) -> Verdict {
        guard Self.isHello(head) else { return .forward(head) }
        do throws(WireError) {
            guard case .hello(var hello) = try ClientMessage(head: head) else { return .forward(head) }
            guard hello.principal == nil, hello.proof == nil else {
                return refusal(
                    WireError(.badMessage, "the gateway names the principal of a key: remove principal and proof"),
                    code: "not-authorized")
            }
            hello.principal = principal
            hello.proof = proof
            return .forward(ClientMessage.hello(hello).encoded())
        } catch {
            // A longer verb that begins like HELLO.
            if error.code == .unknownVerb { return .forward(head) }
            return refusal(error, code: error.code.rawValue)
        }
    }

    private func refusal(_ error: WireError, code: String) -> Verdict {
        var reply = ErrorReply(code: code, detail: error.detail)
        reply.verb = "HELLO"
        return .refuse(BrokerMessage.error(reply).encoded())
    }

    /// Whether a head is a HELLO, or one that only the decoder tells from it.
    static func isHello(_ head: [UInt8]) -> Bool { head.starts(with: hello) }
}
