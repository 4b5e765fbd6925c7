internal import EarshotWire

/// Principals: the authenticated identities of clients and of workers.
///
/// The shell reports the local user of each connection. A HELLO may name another principal: that of the gateway, which
/// proves itself with a secret of the supervisor, and that of the administrator, who needs no proof, from a session
/// without `rights: user`. The READY of a worker names one only through the gateway. The gateway runs as the administrator's user, but its connections have no rights of
/// that user: without a proof they open no session. A proof of the gateway names keys only. That of the HTTP door, whose
/// connections count as such of a gateway, names local users, or nobody for the rights of a user in the administrator's name.
enum Principals {
    /// Principal and rights of a session, and the form of its bodies.
    struct Identity: Equatable {
        var principal: Handle<Principal>
        /// Whether the client cannot open files of the broker: it is on another machine, or another user.
        var mustPull: Bool
        /// Whether the session has the rights of the administrator.
        var isAdministrator: Bool

        init(_ principal: Handle<Principal>, of hello: Hello, mustPull: Bool) {
            self.principal = principal
            self.mustPull = mustPull
            isAdministrator = principal == PrincipalTable.administrator && !hello.hasUserRights
        }
    }

    /// The identity that a HELLO opens a session for; nil if its client may not name this principal.
    static func identity(of hello: Hello, from client: Handle<ClientSession>, in records: inout Records) -> Identity? {
        let user = records.clients[client].user
        let isLocal = user == PrincipalTable.administrator
        let isGateway = records.clients[client].isGateway
        let isDoor = hello.proof != nil && hello.proof == records.features.doorProof
        guard let name = hello.principal else {
            guard isGateway || hello.proof != nil ? isDoor && hello.hasUserRights : true else { return nil }
            return Identity(user, of: hello, mustPull: !isLocal)
        }
        if let proof = hello.proof {
            guard isDoor ? name.isOfUser && isLocal : isProof(proof, of: name, in: &records) else { return nil }
            return Identity(add(name, in: &records), of: hello, mustPull: !isDoor)
        }
        guard isLocal, !isGateway, !hello.hasUserRights else { return nil }
        return Identity(add(name, in: &records), of: hello, mustPull: false)
    }

    /// The principal of a worker by its READY; nil if the worker may not name it. Only the gateway may name one, and it must.
    static func principal(
        of ready: Ready, from worker: Handle<WorkerSession>, in records: inout Records
    ) -> Handle<Principal>? {
        guard let name = ready.principal else {
            return ready.proof == nil && !records.workers[worker].isGateway ? PrincipalTable.administrator : nil
        }
        guard let proof = ready.proof, isProof(proof, of: name, in: &records) else { return nil }
        return add(name, in: &records)
    }

    private static func isProof(_ proof: GatewayProof, of name: PrincipalName, in records: inout Records) -> Bool {
        records.features.gatewayProof.map { proof == $0 && name.isOfKey } ?? false
    }

    /// Whether a session came through the gateway with a key that is no longer valid.
    static func isRevoked(_ client: Handle<ClientSession>, in records: inout Records) -> Bool {
        guard records.clients[client].isGateway, let valid = records.features.validKeys,
            let name = records.principals.name(of: records.clients[client].principal)
        else { return false }
        return name.isOfClientKey && !valid.contains(name)
    }

    /// A principal, which is added if needed. The caller refers to it next.
    ///
    /// - Parameter name: nil for the administrator.
    static func add(_ name: PrincipalName?, in records: inout Records) -> Handle<Principal> {
        guard let name else { return PrincipalTable.administrator }
        return records.principals.add(name) {
            [
                clients = records.clients, handlers = records.handlers, quotas = records.quotas,
                workers = records.workers, pools = records.pools
            ] in
            principals(of: clients, handlers, quotas, workers, pools)
        }
    }

    /// Numbers that a session, a handler, a transfer being cancelled, a worker or a pool has. O(sessions and handlers).
    static func principals(
        of clients: SessionTable, _ handlers: HandlerRegistry, _ quotas: QuotaBook, _ workers: WorkerFleet,
        _ pools: WorkerPools
    ) -> Set<Handle<Principal>> {
        let others = handlers.principals.union(quotas.principals).union(workers.principals).union(pools.principals)
        return clients.indices.reduce(into: others.union([PrincipalTable.administrator])) {
            $0.formUnion([clients[$1].user, clients[$1].principal])
        }
    }

    /// Detail of the refusal of a message that is reserved for the administrator: a change of settings, a question about
    /// the whole bus, or a request for which a worker would open files of the user that runs the broker. Nil for others.
    static func reservation(of message: ClientMessage) -> String? {
        switch message {
        case .set: return "settings are reserved for the administrator"
        case .query(let query, _):
            switch query {
            case .origins, .workers, .settings, .cluster:
                return "origins, workers, settings and cluster are reserved for the administrator"
            case .ping, .status, .ledger, .handlers, .requests, .why, .cookies: return nil
            }
        case .fetch(let fetch):
            let route = fetch.options.route
            let isReserved = route.caFile != nil || route.clientCertificate != nil || route.clientKey != nil
            return isReserved ? "files of certificates are reserved for the administrator" : nil
        case .hello, .retry, .remove, .removeRequest, .subscribe, .unsubscribe, .priority, .cookies, .acknowledge,
            .read, .take, .bye:
            return nil
        }
    }
}
