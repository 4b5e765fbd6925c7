internal import HeapModule

/// Timers, and the subjects that they still have.
extension Records {
    /// Sets a timer. Stale timers are removed when timers outnumber their possible subjects by far, so the heap stays
    /// bounded.
    mutating func setTimer(_ at: Tick, _ subject: Timer.Subject) {
        outbox.timers.insert(Timer(at: at, subject: subject))
        let subjects =
            requests.count + handlers.count + flights.count + workers.count + governor.origins.count
            + governor.scopes.count + clients.count + pools.count
        guard outbox.timers.count > 1_024 + 4 * subjects else { return }
        outbox.timers = Heap(outbox.timers.unordered.filter { isLive($0.subject) })
    }

    /// Whether a timer is not stale. Timers without a serial or subject count as live.
    mutating func isLive(_ subject: Timer.Subject) -> Bool {
        switch subject {
        case .deadline(let interest), .coolDownWait(let interest), .progress(let interest):
            requests.resolve(interest).map { requests[$0].phase == .open } ?? false
        case .grace(let interest): requests.resolve(interest).map { requests[$0].phase == .held } ?? false
        case .expired(let interest, let timer): durables.isExpiryTimer(timer, of: interest)
        case .abandoned(let handler, let absence):
            handlers.contains(handler) && handlers[handler].absence == absence && handlers[handler].isNamed
        case .retry(let name): flights.handle(of: name) != nil
        case .cooled(let scope, let serial): governor.isCooling(scope, serial: serial)
        case .paused(let origin, let pause): governor.isPaused(origin, serial: pause)
        case .greeting(let client): clients.handle(of: client).map { clients[$0].phase == .joining } ?? false
        case .lease(let client, let absence): clients.contains(client) && clients[client].absence == absence
        case .stalled(let client, let stall):
            clients.contains(client) && clients[client].deliveries.watch?.serial == stall
        case .poolEmpty(let pool, let absence): pools.isAwaited(pool, serial: absence)
        case .opening, .spoolRetry: true
        case .slowStart(let origin, let serial): governor.isInSlowStart(origin, serial: serial)
        case .jars(let serial): cookieJars.isAwaited(serial)
        case .isolation(let id): workers.handle(of: id).map { workers[$0].isolation != nil } ?? false
        case .heartbeat(let id): workers.handle(of: id) != nil
        case .rates(let due): rates.due == due
        case .suspicion(let name, let deaths):
            flights.handle(of: name).map { flights[$0].isSuspect && flights[extras: $0].workerDeaths == deaths }
                ?? false
        }
    }

    /// Sets the lease timer of a session that is away.
    mutating func setLeaseTimer(_ at: Tick, of client: Handle<ClientSession>) {
        if let absence = clients[client].absence { setTimer(at, .lease(client: client, absence: absence)) }
    }
}
