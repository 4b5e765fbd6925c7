internal import EarshotHTTP
internal import EarshotWire

/// Quotas of principals: counting at the places where the tables change, and the ends of obstacles.
extension BrokerCore {
    /// Principal of the handler of a request.
    @inline(__always)
    func principal(of interest: Handle<Interest>) -> Handle<Principal> {
        handlers[interests[interest].handler].principal
    }

    // MARK: Transfers

    /// Releases the bytes and the slot of a lease that has ended.
    mutating func releaseUse(of lease: borrowing WorkerLease) {
        outcomes.filesGrew(by: -lease.growingBytes)
        let principal = lease.principal
        guard principal != PrincipalTable.administrator else { return }
        quotas.spoolBytes(-lease.growingBytes, of: principal)
        if quotas.transferEnded(by: principal) { queue.quotaOpened(principal) }
    }

    /// Applies changed quotas.
    mutating func quotasChanged() {
        for principal in quotas.setLimits(QuotaBook.Limits(limits)) { queue.quotaOpened(principal) }
    }

    // MARK: Bodies

    /// Charges the change of a client's window to its principal. Called after each change.
    @inline(__always)
    mutating func chargeWindow(of client: Handle<ClientSession>) {
        let principal = clients[client].principal
        guard principal != PrincipalTable.administrator else { return }
        let bytes = clients[client].deliveries.weight.bodies
        let change = bytes - clients[client].chargedBytes
        clients[client].chargedBytes = bytes
        quotas.spoolBytes(change, of: principal)
    }

    /// Bytes that a request charges to its principal while its outcome is held.
    func heldBytes(of interest: Handle<Interest>) -> Int {
        guard let outcome = interests[interest].outcome, !interests[interest].isWarm else { return 0 }
        return outcomes[outcome].response?.length ?? 0
    }

    /// Returns a failure in place of an outcome whose body exceeds the quota of the request's principal; otherwise the
    /// outcome itself.
    ///
    /// - Parameter receivers: number of terminals with the body.
    mutating func withinQuota(
        _ outcome: Handle<Outcome>, of interest: Handle<Interest>, receivers: Int
    ) -> Handle<Outcome> {
        let principal = principal(of: interest)
        guard principal != PrincipalTable.administrator, !interests[interest].isWarm,
            let response = outcomes[outcome].response, response.length > 0
        else { return outcome }
        // Workers report the length.
        let bytes = response.length.multipliedReportingOverflow(by: receivers)
        guard bytes.overflow || !quotas.hasRoomInSpool(for: bytes.partialValue, of: principal) else { return outcome }
        return outcomes.insert(
            outcomes[outcome].replaced(by: .spoolFull, detail: Self.spoolQuotaDetail))
    }

    /// Whether a running transfer must end because its principal is at the quota of bytes. One that serves other
    /// principals too continues, and each request is judged at its end.
    mutating func exceedsQuota(_ lease: borrowing WorkerLease) -> Bool {
        let principal = lease.principal
        guard !quotas.hasRoomInSpool(for: 0, of: principal), let flight = lease.flight else { return false }
        var isAlone = true
        forEachInterest(of: flight) { core, interest in isAlone = isAlone && core.principal(of: interest) == principal }
        return isAlone
    }

    /// Sentence of a failure at the quota of bytes.
    static let spoolQuotaDetail =
        "The bodies that this user has not acknowledged reach the setting spool-per-user; acknowledge some of them."

    // MARK: Durable requests

    /// Bytes of a durable request beside its head and its body: those that the store counts for a row.
    static let durableRowBytes = 256

    /// Counts the bytes of a durable request, or of its result, for its principal.
    mutating func chargeDurable(_ interest: Handle<Interest>, request: Int? = nil, result: Int? = nil) {
        quotas.durableBytes(
            durables.setBytes(request: request, result: result, of: interest), of: principal(of: interest))
    }

    /// Whether the principal of a request may have this many durable bytes more.
    func hasRoomForDurable(_ bytes: Int, of interest: Handle<Interest>) -> Bool {
        quotas.hasRoomForDurable(bytes, of: principal(of: interest))
    }

    // MARK: Checks

    /// Returns a sentence for each violated invariant of the quotas. Linear in all tables.
    func auditQuotas() -> [String] {
        var uses: [Handle<Principal>: QuotaBook.Use] = [:]
        for handler in handlers.indices {
            uses[handlers[handler].principal, default: .init()].requests += handlers[handler].requests.pending
        }
        for worker in workers.indices {
            for lease in workers[worker].leases.values {
                uses[lease.principal, default: .init()].transfers += 1
                uses[lease.principal, default: .init()].spoolBytes += lease.growingBytes
            }
        }
        for charge in cluster.map({ Array($0.value.charges.values) }) ?? [] {
            uses[charge.principal, default: .init()].transfers += 1
        }
        for client in clients.indices {
            uses[clients[client].principal, default: .init()].spoolBytes += clients[client].deliveries.weight.bodies
        }
        for interest in interests.indices {
            if interests[interest].phase == .held {
                uses[principal(of: interest), default: .init()].spoolBytes += heldBytes(of: interest)
            }
            if let record = durables.records[interest] {
                uses[principal(of: interest), default: .init()].durableBytes += record.requestBytes + record.resultBytes
            }
        }
        return quotas.checkInvariants(expected: uses)
    }
}
