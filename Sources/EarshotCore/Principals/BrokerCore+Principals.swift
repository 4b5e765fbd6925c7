public import EarshotWire

/// Principals: the authenticated identities of clients.
///
/// The shell reports the local user of each connection. A HELLO may name another principal: that of the gateway, which
/// proves itself with a secret of the supervisor, and that of the administrator, who needs no proof.
extension BrokerCore {
    /// Principal of a session, and the form of its bodies.
    struct Identity: Equatable {
        var principal: Int32
        /// Whether the client cannot open files of the broker: it is on another machine, or another user.
        var mustPull: Bool
    }

    /// The identity that a HELLO opens a session for; nil if its client may not name this principal.
    mutating func identity(of hello: Hello, from client: Int32) -> Identity? {
        let user = clients[client].user
        let isLocal = user == PrincipalTable.administrator
        guard let name = hello.principal else { return Identity(principal: user, mustPull: !isLocal) }
        if let proof = hello.proof {
            guard let expected = facilities.gatewayProof, proof == expected else { return nil }
            return Identity(principal: principalNumber(name), mustPull: true)
        }
        return isLocal ? Identity(principal: principalNumber(name), mustPull: false) : nil
    }

    /// Number of a principal, which is added if needed. The caller refers to it next.
    ///
    /// - Parameter name: nil for the administrator.
    mutating func principalNumber(_ name: PrincipalName?) -> Int32 {
        guard let name else { return PrincipalTable.administrator }
        return principals.add(name) { [clients] in Self.principals(of: clients) }
    }

    /// Numbers that a session has. O(sessions).
    static func principals(of clients: SessionTable) -> Set<Int32> {
        clients.indices.reduce(into: [PrincipalTable.administrator]) {
            $0.formUnion([clients[$1].user, clients[$1].principal])
        }
    }

    /// Whether a message is reserved for the administrator: a change of settings, or a request for which a worker would
    /// open files of the user that runs the broker.
    static func isReserved(_ message: ClientMessage) -> Bool {
        switch message {
        case .set: return true
        case .fetch(let fetch):
            let route = fetch.options.route
            return route.caFile != nil || route.clientCertificate != nil || route.clientKey != nil
        default: return false
        }
    }

    /// The principal of a session, for the log of the shell; nil for the administrator.
    public func principal(of id: ClientID) -> PrincipalName? {
        guard let client = clients.number(of: id) else { return nil }
        return principals.name(of: clients[client].principal)
    }
}
