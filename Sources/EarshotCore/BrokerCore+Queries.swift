internal import EarshotHTTP
internal import EarshotWire

/// What the broker tells about itself, as JSON.
extension BrokerCore {
    mutating func answer(_ query: Query, to client: Int32, now: Tick) {
        var json = JSONText()
        json.object { json in
            json.member("broker", instance.description)
            switch query {
            case .ping: break
            case .status: writeStatus(to: &json, now: now)
            case .ledger: write(ledger, to: &json)
            case .handlers:
                json.member("handlers") {
                    $0.array(handlers.indices.filter { handlers[$0].purge == nil }) { writeHandler($1, to: &$0) }
                }
            case .origins: writeOrigins(to: &json, now: now)
            case .workers: writeWorkers(to: &json)
            case .why(let handler, let request): writeReason(handler, request, to: &json, now: now)
            }
        }
        actions.append(.answer(clients[client].id, query, json: json.bytes))
    }

    private func writeStatus(to json: inout JSONText, now: Tick) {
        write(ledger, to: &json)
        json.member("phase", isDraining ? "draining" : "serving")
        json.member("queue") { json in
            json.object { json in
                for priority in PriorityClass.allCases {
                    json.member(priority.name, queue.counts[Int(priority.rawValue)])
                }
            }
        }
        json.member("flights-now") { json in
            let cancelling = workers.indices.reduce(0) { $0 + workers[$1].cancelling }
            json.object { json in
                json.member("queued", flightCounts.queued)
                json.member("running", flightCounts.running)
                json.member("backing-off", flightCounts.backingOff)
                json.member("following", flightCounts.following)
                json.member("cancelling", cancelling)
            }
        }
        json.member("clients", clientNumbers.count)
        json.member("handlers", handlerNumbers.count)
        writeWorkers(to: &json)
        writeOrigins(to: &json, now: now)
    }

    private func write(_ ledger: Ledger, to json: inout JSONText) {
        json.member("requests") { write(ledger.requests, to: &$0) }
        json.member("deliveries") { json in
            json.object { json in
                json.member("due", ledger.deliveries.due)
                json.member("acknowledged", ledger.deliveries.acknowledged)
                json.member("lost", ledger.deliveries.lost)
                json.member("outstanding", ledger.deliveries.outstanding)
            }
        }
        json.member("flights") { json in
            json.object { json in
                json.member("started", ledger.flights.started)
                json.member("joined", ledger.flights.joined)
                json.member("assigned", ledger.flights.assigned)
                json.member("cancelled", ledger.flights.cancelled)
                json.member("retried", ledger.flights.retried)
                json.member("lost", ledger.flights.lost)
                json.member("cool-downs", ledger.flights.coolDowns)
                json.member("stale", ledger.flights.stale)
            }
        }
    }

    private func write(_ requests: Ledger.Requests, to json: inout JSONText) {
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
        }
    }

    private func writeHandler(_ handler: Int32, to json: inout JSONText) {
        json.object { json in
            json.member("handler", handlers[handler].id.description)
            json.member("listeners", listeners(of: handler).count)
            json.member("requests") { write(handlers[handler].requests, to: &$0) }
        }
    }

    private func writeOrigins(to json: inout JSONText, now: Tick) {
        let byOrigin = Dictionary(grouping: scopes.indices.map { scopes[$0] }, by: \.origin)
        json.member("origins") { json in
            json.array(origins.indices) { json, origin in
                let scopes = byOrigin[origin, default: []]
                json.object { json in
                    json.member("origin", origins[origin].origin.description)
                    json.member("running", Int(origins[origin].running))
                    json.member("limit", Int(origins[origin].limit))
                    json.member("spacing-ms", Int(origins[origin].spacingMilliseconds))
                    json.member("flights", scopes.reduce(0) { $0 + $1.flights })
                    let waits = scopes.compactMap { $0.coolDown?.end?.milliseconds(since: now) }
                    if let wait = waits.max() { json.member("cooling-ms", wait) }
                }
            }
        }
    }

    private func writeWorkers(to json: inout JSONText) {
        json.member("workers") { json in
            json.array(workers.indices) { json, worker in
                json.object { json in
                    json.member("pid", workers[worker].pid)
                    json.member("phase", workers[worker].phase.rawValue)
                    json.member("slots", workers[worker].slots)
                    json.member("running", workers[worker].leases.count - workers[worker].cancelling)
                    json.member("cancelling", workers[worker].cancelling + workers[worker].foreign.count)
                }
            }
        }
    }

    private func name(of phase: Flight.Phase) -> String {
        switch phase {
        case .queued: "queued"
        case .running: "running"
        case .backingOff: "backing-off"
        case .following: "following"
        }
    }

    // MARK: Why

    private func writeReason(_ handler: HandlerID, _ request: RequestID, to json: inout JSONText, now: Tick) {
        json.member("handler", handler.description)
        json.member("request", request.description)
        guard let number = handlerNumbers[handler],
            let interest = listedInterest(request, of: number)
        else {
            json.member("state", "unknown")
            json.member("reason", "there is no such request; its terminal may have been acknowledged")
            return
        }
        json.member("class", interests[interest].priority.name)
        json.member("age-ms", now.milliseconds(since: interests[interest].askedAt))
        switch interests[interest].phase {
        case .held:
            json.member("state", "held")
            json.member("reason", "nobody listens to the handler")
        case .delivering:
            json.member("state", "delivering")
            json.member("reason", "its terminal waits for an ACK or for room in a window")
        case .open: writeReason(ofOpen: interest, to: &json, now: now)
        }
    }

    private func writeReason(ofOpen interest: Int32, to json: inout JSONText, now: Tick) {
        let leaf = leaf(of: interests[interest].flight)
        let flight = flights[leaf]
        json.member("url", flight.request.url.redacted)
        json.member("state", name(of: flight.phase))
        json.member("attempts", Int(flight.attempts))
        switch flight.phase {
        case .queued: json.member("reason", reasonToWait(interest, flight, now: now))
        case .running(let worker):
            json.member("reason", "a worker fetches it")
            json.member("worker", workers[worker].pid)
            json.member("received", workers[worker].leases[flight.id]?.receivedBytes ?? 0)
        case .backingOff:
            json.member("reason", "an attempt failed; the next one is after a pause")
            json.member("retry-in-ms", (pauses[leaf] ?? now).milliseconds(since: now))
        case .following: json.member("reason", "it was redirected")
        }
    }

    private func reasonToWait(_ interest: Int32, _ flight: Flight, now: Tick) -> String {
        let owner = interests[interest].owner
        if !workers.indices.contains(where: { workers[$0].phase == .ready }) { return "no worker is connected" }
        if owner >= 0, clients[owner].isClosed(limits) { return "the client's window is full: it has to acknowledge" }
        let scope = scopes[flight.scope]
        if let until = scope.coolDown?.end {
            return "its origin asked to be left alone for \(until.milliseconds(since: now)) ms more"
        }
        if !scope.admits { return "one request tries first whether its origin takes any again" }
        let origin = origins[scope.origin]
        if !origin.hasRoom(for: interests[interest].priority) {
            return "its origin has \(origin.running) of \(origin.limit) transfers"
        }
        return "it waits for a slot"
    }
}
