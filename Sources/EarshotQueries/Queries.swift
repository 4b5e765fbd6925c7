public import EarshotCore
internal import EarshotWire

/// Answers to QUERY, as JSON, composed from the tables of the core.
///
/// A session without the rights of the administrator learns of the handlers of its principal only.
/// `Principals.administratorOnlyDetail` refuses the tables of the whole bus. A new query is a case of `Query` in
/// EarshotWire, with its words there, and a case of the switch below.
public enum Queries {
    /// Returns the answer to a query.
    @Sendable
    public static func answer(_ scoped: ScopedQuery, from view: CoreView) -> [UInt8] {
        var json = JSONText()
        view.writeAnswer(scoped, to: &json)
        return json.bytes
    }
}

extension CoreView {
    fileprivate func writeAnswer(_ scoped: ScopedQuery, to json: inout JSONText) {
        let (page, principal, isAdministrator) = (scoped.page, scoped.principal, scoped.isAdministrator)
        json.object { json in
            json.member("broker", brokerInstance.description)
            switch scoped.query {
            case .ping: break
            case .status where !isAdministrator: writeStatus(of: principal, to: &json)
            case .status: writeStatus(page.limit, to: &json)
            case .ledger where !isAdministrator: writeLedger(of: principal, to: &json)
            case .ledger: writeLedger(records.ledger, to: &json)
            case .handlers: writeHandlers(page, for: principal, seesAll: isAdministrator, to: &json)
            case .origins: writeOrigins(page, to: &json)
            case .workers: writeWorkers(page, to: &json)
            case .requests where !isAdministrator: writeRequests(page, of: principal, to: &json)
            case .requests: writeRequests(page, to: &json)
            case .settings: writeSettings(page, to: &json)
            case .cluster: writeCluster(withMembers: true, to: &json)
            case .explainRequest(let handler, let request):
                writeWaitReason(HandlerKey(principal, handler), request, seesAll: isAdministrator, to: &json)
            case .cookies(let handler): writeCookies(of: HandlerKey(principal, handler), page, to: &json)
            }
        }
    }

    private func writeStatus(_ limit: Int?, to json: inout JSONText) {
        let page = QueryPage(limit: limit)
        writeLedger(records.ledger, to: &json)
        json.member("phase", records.isDraining ? "draining" : "serving")
        json.member("admission", records.limits.acceptsNewRequests ? "open" : "closed")
        json.member("ready", isReady)
        if isLoadingDurables { json.member("durable", "loading") }
        json.member("queue") { json in
            json.object { json in
                for priority in PriorityClass.allCases {
                    json.member(priority.name, records.queue.count(of: priority))
                }
            }
        }
        json.member("flights-now") { json in
            let cancelling = records.workers.indices.reduce(0) { $0 + records.workers[$1].cancellingLeaseCount }
            json.object { json in
                json.member("looking-up", records.flights.phaseCounts.lookingUp)
                json.member("queued", records.flights.phaseCounts.queued + records.flights.phaseCounts.claiming)
                json.member("running", records.flights.phaseCounts.running)
                json.member("backing-off", records.flights.phaseCounts.backingOff)
                json.member("following", records.flights.phaseCounts.following)
                json.member("cancelling", cancelling)
            }
        }
        json.member("clients", records.clients.connectedCount)
        json.member("clients-away", records.clients.awaySessions.count)
        json.member("handlers", records.handlers.namedCount)
        writeDurationHistograms(to: &json)
        writePathFaults(to: &json)
        if let doorReport { writeDoorReport(doorReport, to: &json) }
        if records.clusterState != nil { writeCluster(withMembers: false, to: &json) }
        writeWorkers(page, to: &json)
        writeOrigins(page, to: &json)
    }

    /// Writes the part of the status that a principal may know. O(its handlers, and sessions).
    private func writeStatus(of principal: Handle<Principal>, to json: inout JSONText) {
        let own = records.handlers.namedHandlers(of: principal)
        writeRequestTotals(requestTotals(of: own), to: &json)
        json.member("phase", records.isDraining ? "draining" : "serving")
        json.member("admission", records.limits.acceptsNewRequests ? "open" : "closed")
        json.member("ready", isReady)
        if isLoadingDurables { json.member("durable", "loading") }
        let sessions = records.clients.handles.filter {
            records.clients[$0].principal == principal && !records.clients[$0].hasEnded
        }
        let away = sessions.count { records.clients[$0].isAway }
        json.member("clients", sessions.count - away)
        json.member("clients-away", away)
        json.member("handlers", own.count)
    }

    /// Writes the requests of a principal, as far as its handlers still count them. O(its handlers).
    private func writeLedger(of principal: Handle<Principal>, to json: inout JSONText) {
        writeRequestTotals(requestTotals(of: records.handlers.namedHandlers(of: principal)), to: &json)
    }

    /// Sum of the requests of some handlers.
    private func requestTotals(of members: [Handle<HandlerEntry>]) -> Ledger.Requests {
        members.reduce(into: Ledger.Requests()) { $0.add(records.handlers[$1].requestCounts) }
    }

    private func writeRequestTotals(_ requests: Ledger.Requests, to json: inout JSONText) {
        json.member("requests") { writeRequestCounts(of: requests, to: &$0) }
    }

    /// Whether new requests for http and https can be served: admission is open, a worker accepts jobs, no place is
    /// lost, the gateway is in no crash loop, and the node of a cluster does not wait for its engine.
    private var isReady: Bool {
        !records.isDraining && records.limits.acceptsNewRequests
            && records.workers.slotCount(of: WorkerPool.webPoolHandle).totalSlots > 0
            && pathFaults.allSatisfy { $0.failureReason == nil }
            && !childFailures.contains { $0.childRole == "gateway" }
            && !isWaitingForClusterEngine
    }

    private func writeDurationHistograms(to json: inout JSONText) {
        json.member("times") { json in
            json.object { json in
                json.member("bounds-us") { json in
                    json.array(DurationHistogram.upperBoundsMicroseconds) { $0.value($1) }
                }
                for (name, histogram) in [
                    ("wait", requestTimes.waitHistogram), ("transfer", requestTimes.transferHistogram),
                    ("total", requestTimes.totalHistogram),
                ] {
                    json.member(name) { json in
                        json.object { json in
                            json.member("sum-us", histogram.sumMicroseconds)
                            json.member("buckets") { json in json.array(histogram.bucketValues) { $0.value($1) } }
                        }
                    }
                }
            }
        }
    }

    private func writeDoorReport(_ door: HTTPDoorState, to json: inout JSONText) {
        json.member("http") { json in
            json.object { json in
                json.member("addresses") { json in json.array(door.listeningAddresses) { $0.value($1) } }
                json.member("connections", door.openConnectionCount)
                json.member("requests", door.requestCount)
                json.member("refused", door.refusedRequestCount)
            }
        }
    }

    private func writePathFaults(to json: inout JSONText) {
        json.member("faults") { json in
            json.array(pathFaults) { json, fault in
                json.object { json in
                    json.member("place", fault.pathRole)
                    json.member("path", fault.path)
                    json.member("state", fault.failureReason == nil ? "restored" : "lost")
                    json.member("count", fault.lossCount)
                    json.member("last", fault.lastDetectedAt)
                    if let reason = fault.failureReason { json.member("reason", reason) }
                }
            }
        }
    }

    private func writeLedger(_ ledger: Ledger, to json: inout JSONText) {
        writeRequestTotals(ledger.requests, to: &json)
        json.member("deliveries") { json in
            json.object { json in
                json.member("due", ledger.deliveries.started)
                json.member("acknowledged", ledger.deliveries.acknowledged)
                json.member("lost", ledger.deliveries.lost)
                json.member("outstanding", ledger.deliveries.outstanding)
            }
        }
        json.member("flights") { json in
            json.object { json in
                json.member("started", ledger.flights.started)
                json.member("joined", ledger.flights.joinedRequests)
                json.member("assigned", ledger.flights.assignedAttempts)
                json.member("cancelled", ledger.flights.cancelled)
                json.member("bytes", ledger.flights.responseBodyBytes)
                json.member("bytes-unwanted", ledger.flights.bytesAfterCancel)
                json.member("retried", ledger.flights.retriedAttempts)
                json.member("lost", ledger.flights.lostAttempts)
                json.member("cool-downs", ledger.flights.originCoolDowns)
                json.member("stale", ledger.flights.staleCompletions)
            }
        }
        json.member("cache") { json in
            json.object { json in
                json.member("lookups", ledger.cache.lookups)
                json.member("used", ledger.cache.usedResponses)
                json.member("validated", ledger.cache.validatedResponses)
                json.member("stored", ledger.cache.storedResponses)
            }
        }
        json.member("parts") { json in
            json.object { json in
                json.member("count", storedParts.parts)
                json.member("bytes", storedParts.bytes)
                json.member("stored", ledger.parts.storedParts)
                json.member("resumed", ledger.parts.resumedParts)
                json.member("bytes-resumed", ledger.parts.resumedBytes)
            }
        }
    }

    func writeRequestCounts(of requests: Ledger.Requests, to json: inout JSONText) {
        json.object { json in
            json.member("submitted", requests.submitted)
            json.member("answered", requests.answered)
            json.member("failed") { json in
                json.object { json in
                    for (code, count) in requests.failed.sorted(by: { $0.key < $1.key }) { json.member(code, count) }
                }
            }
            json.member("removed", requests.removed)
            json.member("orphaned", requests.orphaned)
            json.member("pending", requests.pending)
            if requests.keptFailures > 0 { json.member("failed-kept", requests.keptFailures) }
        }
    }
}

extension Ledger.Requests {
    /// Adds the counters of other requests.
    mutating func add(_ other: Self) {
        submitted += other.submitted
        answered += other.answered
        failed.merge(other.failed) { $0 + $1 }
        removed += other.removed
        orphaned += other.orphaned
        pending += other.pending
        keptFailures += other.keptFailures
    }
}
