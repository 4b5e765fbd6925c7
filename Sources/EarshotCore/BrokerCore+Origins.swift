internal import EarshotHTTP

/// Origins: how much each is given at once and how quickly one after the other, and when it is left alone.
extension BrokerCore {
    mutating func scopeNumber(of request: HTTPRequest) -> Int32 {
        let origin = originNumber(of: request.url)
        let trust = CredentialRule.standard.scope(of: request)
        if trust.isShared, origins[origin].sharedScope >= 0 { return origins[origin].sharedScope }
        let key = OriginScopeKey(origin: origin, scope: trust)
        if !trust.isShared, let scope = scopeNumbers[key] { return scope }
        let scope = scopes.insert(OriginScope(origin: origin, scope: trust))
        if trust.isShared { origins[origin].sharedScope = scope } else { scopeNumbers[key] = scope }
        origins[origin].scopes += 1
        return scope
    }

    mutating func originNumber(of url: FetchURL) -> Int32 {
        let hash = UInt32(truncatingIfNeeded: url.originHash)
        if let origin = originNumbers.find(hash, { url.isOf(originNamed: origins[$0].name) }) { return origin }
        guard let pool = poolNumbers[String(url.scheme)] else { preconditionFailure("\(url.scheme) has no pool") }
        var entry = OriginEntry(of: url, nameHash: hash, pool: pool)
        entry.set(terms(for: entry, in: pool))
        let origin = origins.insert(entry)
        pools[pool].origins += 1
        originNumbers.insert(origin, hash)
        return origin
    }

    @inline(__always)
    func origin(of flight: Int32) -> Int32 { scopes[flights[flight].scope].origin }

    mutating func dropScopeIfIdle(_ scope: Int32) {
        guard scopes[scope].flights == 0 else { return }
        if scopes[scope].coolDown?.end != nil, scopes[scope].isResting || restingScopes < limits.restingScopes {
            if !scopes[scope].isResting { restingScopes += 1 }
            scopes[scope].isResting = true
            return
        }
        if scopes[scope].isResting { restingScopes -= 1 }
        let origin = scopes[scope].origin
        if scopes[scope].scope.isShared {
            origins[origin].sharedScope = -1
        } else {
            scopeNumbers[OriginScopeKey(origin: origin, scope: scopes[scope].scope)] = nil
        }
        scopes.remove(scope)
        origins[origin].scopes -= 1
        dropOriginIfIdle(origin)
    }

    /// A transfer starts.
    mutating func beginTransfer(at origin: Int32, by worker: WorkerID, isHigh: Bool, now: Tick) {
        origins[origin].running += 1
        if !isHigh { origins[origin].lower += 1 }
        origins[origin].lastWorker = worker
        origins[origin].startedAt = now
        pause(origin, now: now)
    }

    /// A transfer ended, whatever came of it.
    mutating func endTransfer(at origin: Int32, isHigh: Bool) {
        origins[origin].endTransfer(isHigh: isHigh)
        queue.originOpened(origin)
        dropOriginIfIdle(origin)
    }

    private mutating func dropOriginIfIdle(_ origin: Int32) {
        guard origins[origin].isIdle else { return }
        originNumbers.remove(origin, origins[origin].nameHash)
        let pool = origins[origin].pool
        origins.remove(origin)
        pools[pool].origins -= 1
        dropPoolIfIdle(pool)
    }

    // MARK: Terms

    /// Lets the present rules hold for every origin: what a raised limit has room for starts, what runs over a lowered
    /// one goes on. O(origins).
    mutating func applyOriginRules(now: Tick) {
        for origin in origins.indices {
            origins[origin].set(terms(for: origins[origin], in: origins[origin].pool))
            pause(origin, now: now)
            queue.originOpened(origin)
            dropOriginIfIdle(origin)
        }
    }

    /// Keeps an origin's next start away from its last one. The record stays until that is over, whoever still wants
    /// something there.
    mutating func pause(_ origin: Int32, now: Tick) {
        let end = origins[origin].pauseEnd
        origins[origin].pause = end > now ? nextSerial() : 0
        if end > now { setTimer(end, .paused(origin: origin, pause: origins[origin].pause)) }
    }

    /// The time between two starts is over.
    mutating func pauseEnded(at origin: Int32) {
        origins[origin].pause = 0
        queue.originOpened(origin)
        dropOriginIfIdle(origin)
    }

    // MARK: Cool-downs

    /// An origin asks to be left alone.
    mutating func cool(_ scope: Int32, asked: RetryAfter?, now: Tick) {
        if case .cooling = scopes[scope].coolDown?.phase, asked == nil { return }
        // What was under way when it began to refuse is refused, too: that is one refusal, not as many in a row.
        let strikes = (scopes[scope].coolDown?.strikes ?? 0) + (scopes[scope].coolDown?.end == nil ? 1 : 0)
        let wish = (asked?.seconds ?? 0) * 1_000_000_000
        let pause = max(CoolDown.pause(afterStrikes: strikes, random: generator.next()), wish)
        let until = now.advanced(byNanoseconds: pause)
        if let earlier = scopes[scope].coolDown?.end, earlier >= until { return }
        let isTooLong = wish > Int64(limits.coolDownMilliseconds) * 1_000_000
        let serial = nextSerial()
        scopes[scope].coolDown = CoolDown(
            phase: isTooLong ? .refusing(until: until) : .cooling(until: until), strikes: strikes, serial: serial)
        ledger.flights.coolDowns += 1
        setTimer(until, .cooled(scope: scope, serial: serial))
        if isTooLong { queue.scopeOpened(scope) }
    }

    /// A cool-down's time is over: one transfer may try.
    mutating func cooled(_ scope: Int32) {
        scopes[scope].coolDown?.phase = .due
        queue.scopeOpened(scope)
        dropScopeIfIdle(scope)
    }

    /// What was too long to wait may not be so any more: one request tries each origin that is refused for.
    mutating func endRefusals() {
        for scope in scopes.indices where scopes[scope].isRefusing { cooled(scope) }
    }

    /// Fails what an origin will not take for a long time, and tells for how long.
    mutating func failCooling(_ flight: Int32, until: Tick, now: Tick) {
        let seconds = (until.milliseconds(since: now) + 999) / 1_000
        var outcome = Outcome(failure: .originCooling, attempts: Int(flights[flight].attempts))
        outcome.detail = "The server asked to be left alone for \(seconds) s more."
        end(flight, outcome, now: now)
    }

    /// A flight starts: the first one after a cool-down is the probe.
    mutating func noteProbe(_ flight: Int32) {
        let scope = flights[flight].scope
        if scopes[scope].coolDown?.phase == .due {
            scopes[scope].coolDown?.phase = .probing(flight: flights[flight].id)
        }
    }

    /// A probe ended: an answer other than a refusal ends the cool-down, no answer gives the turn to the next.
    mutating func probeEnded(_ flight: Int32, isAnswered: Bool) {
        let scope = flights[flight].scope
        guard scopes[scope].coolDown?.phase == .probing(flight: flights[flight].id) else { return }
        if isAnswered {
            scopes[scope].coolDown = nil
        } else {
            scopes[scope].coolDown?.phase = .due
        }
        queue.scopeOpened(scope)
    }
}
