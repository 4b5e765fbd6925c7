internal import EarshotCore
internal import EarshotWire

/// Namespaces of principals: invariant 16.
///
/// The model has one namespace. In it a handler of a principal is called `PRINCIPAL/NAME`, and its requests have the
/// principal in their coalescing key. This separates the principals without any rule that the core could share.
extension ReferenceModel {
    /// The model's name of a handler that a client knows by `handler`.
    func principalQualified(_ handler: HandlerID, of client: SessionRecord) -> HandlerID {
        Self.principalQualified(handler, of: client.principal)
    }

    static func principalQualified(_ handler: HandlerID, of principal: PrincipalName?) -> HandlerID {
        principal.flatMap { HandlerID("\($0)/\(handler)") } ?? handler
    }

    private func principalQualified(_ pattern: HandlerPattern, of client: SessionRecord) -> HandlerPattern {
        switch pattern {
        case .handler(let handler): .handler(principalQualified(handler, of: client))
        case .subtree(let handler): .subtree(principalQualified(handler, of: client))
        }
    }

    /// Principal and wire name of a handler in the model.
    static func principalAndHandler(of handler: HandlerID) -> (principal: PrincipalName?, handler: HandlerID) {
        guard handler.description.hasPrefix("key:"), let principal = PrincipalName(String(handler.root)),
            let plain = HandlerID(String(handler.description.dropFirst(handler.root.count + 1)))
        else { return (nil, handler) }
        return (principal, plain)
    }

    /// A client's message with the model's names.
    func principalQualified(_ message: ClientMessage, of client: SessionRecord) -> ClientMessage {
        guard client.principal != nil else { return message }
        switch message {
        case .fetch(var fetch):
            fetch.handler = principalQualified(fetch.handler, of: client)
            return .fetch(fetch)
        case .retry(let handler, let request): return .retry(principalQualified(handler, of: client), request)
        case .removeHandlers(let pattern): return .removeHandlers(principalQualified(pattern, of: client))
        case .removeRequest(let handler, let request):
            return .removeRequest(principalQualified(handler, of: client), request)
        case .subscribe(let pattern): return .subscribe(principalQualified(pattern, of: client))
        case .unsubscribe(let pattern): return .unsubscribe(principalQualified(pattern, of: client))
        case .setPriority(let handler, let request, let priority):
            return .setPriority(principalQualified(handler, of: client), request, priority)
        case .hello, .storeCookies, .acknowledge, .query, .changeSetting, .readBody, .takeFile, .bye: return message
        }
    }

    /// A message to a client with the model's names.
    func principalQualified(_ message: BrokerMessage, of client: SessionRecord) -> BrokerMessage {
        guard client.principal != nil else { return message }
        switch message {
        case .progress(var progress):
            progress.handler = principalQualified(progress.handler, of: client)
            return .progress(progress)
        case .handlersRemoved(let pattern, let count):
            return .handlersRemoved(principalQualified(pattern, of: client), count: count)
        case .requestRemoved(let handler, let request, let wasOpen):
            return .requestRemoved(principalQualified(handler, of: client), request, wasOpen: wasOpen)
        case .welcome, .fetchAccepted, .terminal, .queryAnswer, .settingChanged, .bodyData, .fileTaken, .error, .ok,
            .goodbye:
            return message
        }
    }

    /// Whether only the administrator may send a message of the simulated world.
    static func isAdministratorOnly(_ message: ClientMessage) -> Bool {
        switch message {
        case .changeSetting, .query(.origins, _), .query(.workers, _), .query(.settings, _): true
        case .hello, .fetch, .retry, .removeHandlers, .removeRequest, .subscribe, .unsubscribe, .setPriority,
            .storeCookies,
            .acknowledge, .query, .readBody, .takeFile, .bye:
            false
        }
    }

    // MARK: The quota of transfers

    /// Principal of a flight, which no other principal shares; nil for the administrator.
    func principal(of flight: FlightRecord) -> PrincipalName? {
        var principal: PrincipalName?
        flight.forEachRequest { principal = principal ?? Self.principalAndHandler(of: $0.name.handler).principal }
        return principal
    }

    /// Attempts of each principal that occupy a slot, including those being cancelled. O(leases), 0 without a quota.
    func transfersOfPrincipals() -> [PrincipalName: Int] {
        guard limits.maximumTransfersPerUser > 0 else { return [:] }
        var transfers: [PrincipalName: Int] = [:]
        for worker in pool.values {
            for lease in worker.leases.values {
                if let principal = lease.principal { transfers[principal, default: 0] += 1 }
            }
        }
        return transfers
    }

    /// Whether a principal is at its quota.
    func isAtQuota(_ principal: PrincipalName, _ transfers: [PrincipalName: Int]) -> Bool {
        limits.maximumTransfersPerUser > 0 && transfers[principal, default: 0] >= limits.maximumTransfersPerUser
    }

    // MARK: Terminals

    /// Invariant 16: a terminal that is not due to a client must not be due to one of another principal.
    func checkForeignTerminal(_ terminal: Terminal, to client: SessionRecord) {
        let owner = sessions.values.first { other in
            let name = RequestName(handler: principalQualified(terminal.handler, of: other), request: terminal.request)
            return other.principal != client.principal && other.unsentTerminals[name] != nil
        }
        guard let owner else { return }
        recordViolation(
            16,
            "client \(client.connection.rawValue) is told \(terminal.handler) \(terminal.request) of client "
                + "\(owner.connection.rawValue), which belongs to another principal",
            kind: "another principal's terminal")
    }
}
