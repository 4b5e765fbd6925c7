/// Checks of the quotas: `QuotaBook` counts the same use as the tables contain. `audit` calls it.
extension BrokerCore {
    /// Returns a sentence for each violated invariant of the quotas. Linear in all tables.
    func auditQuotas() -> [String] {
        var uses: [Handle<Principal>: QuotaBook.Use] = [:]
        for handler in records.handlers.indices {
            uses[records.handlers[handler].principal, default: .init()].requests +=
                records.handlers[handler].requests.pending
        }
        for worker in records.workers.indices {
            for lease in records.workers[worker].leases.values {
                uses[lease.principal, default: .init()].transfers += 1
                uses[lease.principal, default: .init()].spoolBytes += lease.growingBytes
            }
        }
        for charge in records.cluster.map({ Array($0.value.charges.values) }) ?? [] {
            uses[charge.principal, default: .init()].transfers += 1
        }
        for client in records.clients.indices {
            let principal = records.clients[client].principal
            uses[principal, default: .init()].spoolBytes += records.clients[client].deliveries.weight.bodies
            uses[principal, default: .init()].memoryBytes += records.clients[client].deliveries.weight.inMemory
            uses[principal, default: .init()].terminals += records.clients[client].deliveries.count
            uses[principal, default: .init()].subscriptions += records.handlers.subscriptionCount(of: client)
        }
        for head in records.requests.heads.all { uses[head.principal, default: .init()].headBytes += head.byteCount }
        for body in records.requests.bodies.all { uses[body.principal, default: .init()].bodyBytes += body.byteCount }
        for part in records.parts.keptParts.values {
            uses[part.principal, default: .init()].parts += 1
            uses[part.principal, default: .init()].spoolBytes += part.bytes
        }
        for (principal, bytes) in records.cookieJars.bytesByPrincipal {
            uses[principal, default: .init()].cookieBytes += bytes
        }
        for interest in records.requests.indices {
            if records.requests[interest].phase == .held {
                let weight = records.heldWeight(of: interest)
                uses[records.principal(of: interest), default: .init()].spoolBytes += weight.bodies
                uses[records.principal(of: interest), default: .init()].memoryBytes += weight.inMemory
            }
            if let record = records.durables.records[interest] {
                uses[records.principal(of: interest), default: .init()].durableBytes +=
                    record.requestBytes + record.resultBytes
            }
        }
        return records.quotas.checkInvariants(expected: uses)
    }
}
