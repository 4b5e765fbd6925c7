internal import EarshotHTTP
internal import EarshotWire

/// Principals: the authenticated identities of clients and of workers.
///
/// The shell reports the local user of each connection. A HELLO may name another principal: that of the gateway, which
/// proves itself with a secret of the supervisor, and that of the administrator, who needs no proof, from a session
/// without `rights: user`. The READY of a worker names one only through the gateway.
///
/// The gateway runs as the administrator's user, but its connections have no rights of that user: without a proof they
/// open no session. A proof of the gateway names keys only. Connections of the HTTP door count as connections of a
/// gateway. A proof of the door names a local user. A proof without a name opens a session of the administrator that has
/// the rights of a user.
enum Principals {
    /// Principal and rights of a session, and the form of its bodies.
    struct Identity: Equatable {
        var principal: Handle<Principal>
        /// Whether the client cannot open files of the broker: it is on another machine, or another user.
        var mustPullBodies: Bool
        /// Whether the session has the rights of the administrator.
        var isAdministrator: Bool

        init(_ principal: Handle<Principal>, of hello: Hello, mustPull: Bool) {
            self.principal = principal
            self.mustPullBodies = mustPull
            isAdministrator = principal == PrincipalTable.administrator && !hello.hasUserRights
        }
    }

    /// The identity for which a HELLO opens a session; nil if its client may not name this principal.
    static func identity(of hello: Hello, from client: Handle<ClientSession>, in records: inout Records) -> Identity? {
        let user = records.clients[client].user
        let isLocal = user == PrincipalTable.administrator
        let isGateway = records.clients[client].isGateway
        let isDoor = hello.proof != nil && hello.proof == records.shellFeatures.doorProof
        guard let name = hello.principal else {
            guard isGateway || hello.proof != nil ? isDoor && hello.hasUserRights : true else { return nil }
            return Identity(user, of: hello, mustPull: !isLocal)
        }
        if let proof = hello.proof {
            guard isDoor ? name.isLocalUser && isLocal : verifiesGatewayProof(proof, of: name, in: &records) else {
                return nil
            }
            return Identity(addPrincipal(name, in: &records), of: hello, mustPull: !isDoor)
        }
        guard isLocal, !isGateway, !hello.hasUserRights else { return nil }
        return Identity(addPrincipal(name, in: &records), of: hello, mustPull: false)
    }

    /// The principal of a worker by its READY; nil if the worker may not name it. Only the gateway may name one, and it
    /// must.
    static func principal(
        of ready: Ready, from worker: Handle<WorkerSession>, in records: inout Records
    ) -> Handle<Principal>? {
        guard let name = ready.principal else {
            return ready.proof == nil && !records.workers[worker].isGateway ? PrincipalTable.administrator : nil
        }
        guard let proof = ready.proof, verifiesGatewayProof(proof, of: name, in: &records) else { return nil }
        return addPrincipal(name, in: &records)
    }

    private static func verifiesGatewayProof(
        _ proof: GatewayProof, of name: PrincipalName, in records: inout Records
    ) -> Bool {
        records.shellFeatures.gatewayProof.map { proof == $0 && name.canBeNamedByGateway } ?? false
    }

    /// Whether a session came through the gateway with a key that is no longer valid.
    static func isRevoked(_ client: Handle<ClientSession>, in records: inout Records) -> Bool {
        guard records.clients[client].isGateway, let valid = records.shellFeatures.validKeys,
            let name = records.principals.name(of: records.clients[client].principal)
        else { return false }
        return name.isClientKey && !valid.contains(name)
    }

    /// A principal, which is added if needed. The caller refers to it next.
    ///
    /// - Parameter name: nil for the administrator.
    static func addPrincipal(_ name: PrincipalName?, in records: inout Records) -> Handle<Principal> {
        guard let name else { return PrincipalTable.administrator }
        return records.principals.addPrincipal(name) {
            [
                clients = records.clients, handlers = records.handlers, quotas = records.quotaUse,
                workers = records.workers, pools = records.workerPools
            ] in
            principalsInUse(by: clients, handlers, quotas, workers, pools)
        }
    }

    /// Principals of sessions, handlers, uses of quotas, workers and pools. O(sessions and handlers).
    static func principalsInUse(
        by clients: SessionTable, _ handlers: HandlerRegistry, _ quotas: QuotaBook, _ workers: WorkerFleet,
        _ pools: WorkerPools
    ) -> Set<Handle<Principal>> {
        let others = handlers.principals.union(quotas.principals)
            .union(workers.principalsWithWorkers).union(pools.principalsWithPools)
        return clients.handles.reduce(into: others.union([PrincipalTable.administrator])) {
            $0.formUnion([clients[$1].user, clients[$1].principal])
        }
    }

    /// Detail of the refusal of a message that is reserved for the administrator: a change of settings, a question
    /// about the whole bus, or a request for which a worker would open files of the user that runs the broker. Nil for
    /// others.
    static func administratorOnlyDetail(of message: ClientMessage) -> String? {
        switch message {
        case .changeSetting: return "settings are reserved for the administrator"
        case .query(let query, _):
            switch query {
            case .origins, .workers, .settings, .cluster:
                return "origins, workers, settings and cluster are reserved for the administrator"
            case .ping, .status, .ledger, .handlers, .requests, .explainRequest, .cookies: return nil
            }
        case .fetch(let fetch):
            let route = fetch.options.route
            let isReserved = route.caFile != nil || route.clientCertificate != nil || route.clientKey != nil
            return isReserved ? "files of certificates are reserved for the administrator" : nil
        case .hello, .retry, .removeHandlers, .removeRequest, .subscribe, .unsubscribe, .setPriority, .storeCookies,
            .acknowledge, .readBody, .takeFile, .bye:
            return nil
        }
    }
}

/// Sharing between users: which of their requests share a flight and a stored response.
///
/// With the setting `share-between-users`, anonymous requests of all users and of the administrator have one partition,
/// which follows the rules of a shared cache. Whether a response may be shared is known when it arrives. If it may not,
/// it goes to the requests of one principal, and no other request joins its flight. The requests of others begin again,
/// each in the partition of its principal.
extension Principals {
    /// Partition of flights and stored responses to which a request belongs: the name of its principal and a space, or
    /// nil for requests of the administrator and for those that all principals share. Only requests of one partition
    /// share a fetch or a response.
    static func partition(
        of interest: Handle<Interest>, _ request: HTTPRequest, _ options: Fetch.Options, in records: inout Records
    ) -> String? {
        let principal = records.handlers[records.requests[interest].handler].principal
        guard principal != PrincipalTable.administrator else { return nil }
        return partition(
            of: records.principals.name(of: principal), request, options,
            sharing: records.settings[.shareBetweenUsers] == 1)
    }

    /// - Parameter isSharing: whether anonymous requests of all principals share.
    @inline(never)
    private static func partition(
        of principal: PrincipalName?, _ request: HTTPRequest, _ options: Fetch.Options, sharing isSharing: Bool
    ) -> String? {
        // Clients read a growing body before its response shows whether it may be shared.
        let mayShare =
            isSharing && options.coalesces && !options.streams && request.method.canCoalesce
            && options.cacheMode != .noStore && CredentialRule.standard.isAnonymous(request)
            && !CacheControl(request: request.fields).noStore
        guard let principal, !mayShare else { return nil }
        return "\(principal) "
    }

    /// Requests that a response must not serve, because users may not share it.
    struct UnshareableRequests {
        /// Requests of other principals than the first request's.
        var detachedInterests: [Handle<Interest>] = []
        /// Partition in which no request joins the flight any more; nil if users share none.
        var newPartition: String?
    }

    /// Returns the requests of a flight that a response with these fields must not serve; nil if users may share it.
    static func unshareableRequests(
        of flight: Handle<Flight>, _ fields: HeaderFields, in records: inout Records
    ) -> UnshareableRequests? {
        let isSharing = records.settings[.shareBetweenUsers] == 1
        // Requests that joined before the setting was switched off are separated as well.
        guard isSharing || records.flights.onlyInterest(of: flight) == nil,
            records.flights[flight].mayServeSeveralUsers, !CacheRule.mayBeShared(fields)
        else { return nil }
        var separation = UnshareableRequests()
        let holder = records.flights.firstInterest(of: flight).map { records.principal(of: $0) }
        records.forEachInterest(of: flight) { records, interest in
            if records.principal(of: interest) != holder, !records.isAwaitingRemoval(interest) {
                separation.detachedInterests.append(interest)
            }
        }
        if isSharing {
            separation.newPartition = exclusivePartition(of: holder ?? PrincipalTable.administrator, in: &records)
        }
        return separation
    }

    /// Partition of a principal's requests that it does not share. That of the administrator is a space, because nil is
    /// shared.
    static func exclusivePartition(of principal: Handle<Principal>, in records: inout Records) -> String {
        "\(records.principals.name(of: principal)?.description ?? "") "
    }
}
