internal import EarshotHTTP
internal import EarshotWire

/// Concurrency limit, spacing and cool-down of every origin.
///
/// An origin is known while a flight names it, a transfer runs there, or its spacing lasts. Its transfers:
///
/// ```
///  open ⇄ full        (transfer started / ended)
///  open → spaced      (transfer started, with a spacing)
///  spaced → open      (pauseEnded)
/// ```
///
/// The requests of an origin with the same credentials share an `OriginScope`, whose cool-down has the phases of
/// `CoolDown`; `enterCoolDownPhase` makes each of its transitions. A scope without flights is kept while its cool-down
/// lasts, up to a limit.
///
/// A broker that follows a dead one begins with a slow start of its origins (`SlowStart`).
///
/// Functions that forget an idle origin return its pool. Functions that begin a pause return the timer to set.
package struct OriginGovernor {
    /// Bounds of the governor.
    struct Limits: Equatable {
        /// Maximum number of scopes kept for their cool-downs alone.
        var maximumCoolDownOnlyScopes: Int
        /// Longest pause that requests wait for; during a longer one they fail.
        var coolDownMilliseconds: Int
        /// Number of URLs in a row that answer 503 without `Retry-After` before a cool-down begins.
        var coolDownURLThreshold: Int
        /// Time after the opening in which a new origin has a slow start.
        var slowStartMilliseconds: Int

        init(_ limits: CoreLimits) {
            maximumCoolDownOnlyScopes = limits.maximumCoolDownOnlyScopes
            coolDownMilliseconds = limits.maximumCoolDownMilliseconds
            coolDownURLThreshold = limits.coolDownURLThreshold
            slowStartMilliseconds = limits.slowStartPeriodMilliseconds
        }
    }

    /// Slow start of the origins of http and https after the death of an earlier broker, whose requests all come again
    /// at once.
    ///
    /// Each origin starts with one transfer, and its limit doubles every `stepMilliseconds` until it is that of the
    /// rules. The steps begin when the broker opens, or when the origin becomes known, if that is later.
    struct SlowStart {
        static let stepMilliseconds = 100

        /// Time from which origins become known without a slow start; nil before the broker opens.
        var slowStartDeadline: MonotonicTime?
        /// Serials of the timers of origins in a slow start.
        var timerSerialsByOrigin: [Handle<OriginEntry>: UInt64] = [:]
    }

    /// Timer for the next step of an origin's slow start.
    struct SlowStartStep: Equatable {
        let origin: Handle<OriginEntry>
        let dueAt: MonotonicTime
        let timerSerial: UInt64
    }

    /// Timer for the end of a spacing.
    struct Pause: Equatable {
        let endsAt: MonotonicTime
        let timerSerial: UInt64
    }

    /// Timer for the end of a cool-down.
    struct CoolDownStart: Equatable {
        let endsAt: MonotonicTime
        let timerSerial: UInt64
        /// Whether requests fail during the cool-down instead of waiting.
        let isRefusing: Bool
    }

    /// Reason why no transfer may start.
    enum StartBlocker: Equatable {
        case coolDown
        /// The limit or the spacing of the origin.
        case originLimitOrSpacing
    }

    /// Copy of the tables for one search through the queue, which shares their storage.
    struct Snapshot {
        fileprivate let origins: Slab<OriginEntry>
        fileprivate let scopes: Slab<OriginScope>

        /// Returns nil if a request of this class may be taken from the queue, to start or to be refused.
        ///
        /// - Parameter isClaiming: whether the engine of the cluster applies the limit, so that only claims are
        ///   bounded.
        func startBlocker(
            in scope: Handle<OriginScope>, to priority: PriorityClass, isClaiming: Bool = false
        ) -> StartBlocker? {
            if !scopes[scope].canTakeRequest { return .coolDown }
            let origin = scopes[scope].origin
            let admits = isClaiming ? origins[origin].admitsClaim(priority) : origins[origin].admitsTransfer(priority)
            return scopes[scope].isRefusing || admits ? nil : .originLimitOrSpacing
        }
    }

    var limits: Limits
    package private(set) var origins = Slab<OriginEntry>()
    package private(set) var scopes = Slab<OriginScope>()
    /// Number of scopes kept for their cool-downs alone.
    private(set) var coolDownOnlyScopeCount = 0
    /// URLs that have answered 503 without `Retry-After` since the latest other answer, of scopes without a cool-down.
    private var unavailableURLsByScope: [Handle<OriginScope>: Set<String>] = [:]
    /// Origins by name. The records hold the names.
    private var originHandles = HandleTable<OriginEntry>()
    /// Scopes of requests with credentials. Records of origins hold the other scopes.
    private var scopeHandles: [OriginScopeKey: Handle<OriginScope>] = [:]
    private var lastTimerSerial: UInt64 = 0
    /// nil in a broker that follows no dead one, and once all origins have their limits.
    private(set) var slowStartState: SlowStart?

    init(limits: Limits) { self.limits = limits }

    // MARK: Queries

    // Functions called for each flight are inlined, because the compiler copies the references to all tables for a call
    // of a non-mutating function.

    var snapshot: Snapshot { Snapshot(origins: origins, scopes: scopes) }

    /// Whether a transfer of this class may start.
    func admitsTransfer(_ scope: Handle<OriginScope>, _ priority: PriorityClass) -> Bool {
        scopes[scope].canTakeRequest && !scopes[scope].isRefusing
            && origins[scopes[scope].origin].admitsTransfer(priority)
    }

    /// End of a cool-down during which requests fail; nil if they do not fail.
    @inline(__always)
    func coolDownRefusalEnd(in scope: Handle<OriginScope>) -> MonotonicTime? {
        if case .refusing(let until) = scopes[scope].coolDown?.phase { until } else { nil }
    }

    func isCurrentSpacingTimer(_ origin: Handle<OriginEntry>, serial: UInt64) -> Bool {
        origins.contains(origin) && origins[origin].spacingTimerSerial == serial
    }

    func isCurrentCoolDownTimer(_ scope: Handle<OriginScope>, serial: UInt64) -> Bool {
        scopes.contains(scope) && scopes[scope].coolDown?.timerSerial == serial
            && scopes[scope].coolDown?.pauseEnd != nil
    }

    /// Scopes in which requests fail. O(scopes).
    var refusingScopes: [Handle<OriginScope>] { scopes.indices.filter { scopes[$0].isRefusing } }

    /// Scopes of a pool in which no transfer may start. O(scopes).
    func blockedScopes(of pool: Handle<WorkerPool>) -> [Handle<OriginScope>] {
        scopes.indices.filter { !scopes[$0].canTakeRequest && origins[scopes[$0].origin].workerPool == pool }
    }

    // MARK: Origins and scopes

    /// Origin of a URL in a pool; nil if it is unknown.
    ///
    /// - Parameter hash: hash of the origin's name and of the pool.
    @inline(__always)
    func origin(of url: FetchURL, in pool: Handle<WorkerPool>, hash: UInt32) -> Handle<OriginEntry>? {
        originHandles.findRecord(withHash: hash) {
            origins[$0].workerPool == pool && url.hasOrigin(named: origins[$0].name)
        }
    }

    /// Adds an origin.
    ///
    /// - Precondition: it is unknown.
    /// - Returns: its handle, and the timer of its slow start; nil without one, and before the broker opens.
    mutating func addOrigin(
        _ origin: OriginEntry, now: MonotonicTime
    ) -> (origin: Handle<OriginEntry>, step: SlowStartStep?) {
        let number = origins.insert(origin)
        originHandles.insert(number, origin.nameHash)
        return (number, slowStartState == nil ? nil : beginSlowStart(of: number, now: now))
    }

    /// Returns a scope of an origin, added if needed. The caller adds a flight to it next.
    mutating func scope(_ trust: TrustScope, at origin: Handle<OriginEntry>) -> Handle<OriginScope> {
        if trust.isCredentialFree, let scope = origins[origin].sharedScope { return scope }
        let key = OriginScopeKey(origin: origin, scope: trust)
        if !trust.isCredentialFree, let scope = scopeHandles[key] { return scope }
        let scope = scopes.insert(OriginScope(origin: origin, trustScope: trust))
        if trust.isCredentialFree { origins[origin].sharedScope = scope } else { scopeHandles[key] = scope }
        origins[origin].scopeCount += 1
        return scope
    }

    mutating func flightJoined(_ scope: Handle<OriginScope>) {
        scopes[scope].flightCount += 1
        setCoolDownOnly(scope, false)
    }

    /// - Returns: the pool of an origin that was forgotten.
    mutating func flightLeft(_ scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        scopes[scope].flightCount -= 1
        return forgetIfIdle(scope: scope)
    }

    private mutating func setCoolDownOnly(_ scope: Handle<OriginScope>, _ isCoolDownOnly: Bool) {
        guard scopes[scope].isKeptForCoolDownOnly != isCoolDownOnly else { return }
        scopes[scope].isKeptForCoolDownOnly = isCoolDownOnly
        coolDownOnlyScopeCount += isCoolDownOnly ? 1 : -1
    }

    /// Frees a scope without flights, unless its cool-down keeps it. Returns the pool of an origin that was forgotten.
    private mutating func forgetIfIdle(scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        guard scopes[scope].flightCount == 0 else { return nil }
        let isCooling = scopes[scope].coolDown?.pauseEnd != nil
        let isKept =
            isCooling
            && (scopes[scope].isKeptForCoolDownOnly || coolDownOnlyScopeCount < limits.maximumCoolDownOnlyScopes)
        setCoolDownOnly(scope, isKept)
        guard !isKept else { return nil }
        if !unavailableURLsByScope.isEmpty { unavailableURLsByScope[scope] = nil }
        let origin = scopes[scope].origin
        if scopes[scope].trustScope.isCredentialFree {
            origins[origin].sharedScope = nil
        } else {
            scopeHandles[OriginScopeKey(origin: origin, scope: scopes[scope].trustScope)] = nil
        }
        scopes.destroy(scope)
        origins[origin].scopeCount -= 1
        return forgetIfIdle(origin: origin)
    }

    /// Frees an origin without scopes, transfers and spacing. Returns its pool.
    private mutating func forgetIfIdle(origin: Handle<OriginEntry>) -> Handle<WorkerPool>? {
        guard origins[origin].isIdle else { return nil }
        originHandles.remove(origin, origins[origin].nameHash)
        slowStartState?.timerSerialsByOrigin[origin] = nil
        let pool = origins[origin].workerPool
        origins.destroy(origin)
        return pool
    }

    // MARK: Transfers

    /// Counts a transfer that this broker starts.
    ///
    /// - Returns: the timer of the spacing after it; nil without a spacing.
    mutating func startTransfer(
        at origin: Handle<OriginEntry>, by worker: WorkerID, isHigh: Bool, now: MonotonicTime
    ) -> Pause? {
        origins[origin].startTransfer(by: worker, isHigh: isHigh, now: now)
        return startSpacingPause(origin, now: now)
    }

    /// Releases a transfer. The origin may admit another one.
    ///
    /// - Parameter isSmall: whether the body was small; nil without a response.
    /// - Returns: the pool of an origin that was forgotten.
    mutating func endTransfer(
        at origin: Handle<OriginEntry>, isHigh: Bool, isSmall: Bool? = nil
    ) -> Handle<WorkerPool>? {
        origins[origin].endTransfer(isHigh: isHigh, isSmall: isSmall)
        return forgetIfIdle(origin: origin)
    }

    /// Changes the terms of an origin, which may then admit more transfers. Those above a lowered limit continue.
    ///
    /// - Returns: the timer of the spacing under the new terms, and the pool of an origin that was forgotten.
    mutating func setTerms(
        _ terms: OriginEntry.Terms, of origin: Handle<OriginEntry>, now: MonotonicTime
    ) -> (pause: Pause?, forgotten: Handle<WorkerPool>?) {
        origins[origin].setTerms(terms, isInSlowStart: slowStartState?.timerSerialsByOrigin[origin] != nil)
        let pause = startSpacingPause(origin, now: now)
        return (pause, forgetIfIdle(origin: origin))
    }

    /// Starts the spacing after an origin's latest start, unless it is over by `now`.
    private mutating func startSpacingPause(_ origin: Handle<OriginEntry>, now: MonotonicTime) -> Pause? {
        let end = origins[origin].pauseEnd
        guard end > now else {
            origins[origin].spacingTimerSerial = nil
            return nil
        }
        let serial = nextTimerSerial()
        origins[origin].spacingTimerSerial = serial
        return Pause(endsAt: end, timerSerial: serial)
    }

    /// Ends a spacing. The origin may admit another transfer.
    ///
    /// - Returns: the pool of an origin that was forgotten.
    mutating func pauseEnded(at origin: Handle<OriginEntry>) -> Handle<WorkerPool>? {
        origins[origin].spacingTimerSerial = nil
        return forgetIfIdle(origin: origin)
    }

    /// Counts open claims of flights of an origin.
    mutating func countOpenClaims(_ change: Int32, at origin: Handle<OriginEntry>) {
        origins[origin].openClaimCount += change
    }

    // MARK: Slow start

    /// Begins the slow start of all origins, known ones and later ones.
    mutating func prepareSlowStart() {
        slowStartState = SlowStart()
        for origin in origins.indices { _ = beginSlowStart(of: origin, now: MonotonicTime(nanoseconds: .min)) }
    }

    /// Begins the steps: transfers may start from now on.
    ///
    /// - Returns: the timers to set.
    mutating func beginSlowStartSteps(now: MonotonicTime) -> [SlowStartStep] {
        guard let slowStartState, slowStartState.slowStartDeadline == nil else { return [] }
        self.slowStartState?.slowStartDeadline = now.advanced(byMilliseconds: limits.slowStartMilliseconds)
        let steps = slowStartState.timerSerialsByOrigin.map { Self.nextSlowStartStep($0.key, $0.value, after: now) }
        return steps.sorted { $0.timerSerial < $1.timerSerial }
    }

    private mutating func beginSlowStart(of origin: Handle<OriginEntry>, now: MonotonicTime) -> SlowStartStep? {
        guard let end = slowStartState?.slowStartDeadline, now >= end else {
            guard origins[origin].workerPool == WorkerPool.webPoolHandle else { return nil }
            origins[origin].beginSlowStart()
            let serial = nextTimerSerial()
            slowStartState?.timerSerialsByOrigin[origin] = serial
            return slowStartState?.slowStartDeadline == nil ? nil : Self.nextSlowStartStep(origin, serial, after: now)
        }
        if slowStartState?.timerSerialsByOrigin.isEmpty == true { slowStartState = nil }
        return nil
    }

    /// Doubles the limit of an origin, which may then admit more transfers.
    ///
    /// - Returns: the timer of the next step; nil after the last one.
    mutating func slowStartStep(of origin: Handle<OriginEntry>, now: MonotonicTime) -> SlowStartStep? {
        guard let serial = slowStartState?.timerSerialsByOrigin[origin] else { return nil }
        origins[origin].slowStartStep()
        if origins[origin].isInSlowStart { return Self.nextSlowStartStep(origin, serial, after: now) }
        slowStartState?.timerSerialsByOrigin[origin] = nil
        return nil
    }

    func isCurrentSlowStartTimer(_ origin: Handle<OriginEntry>, serial: UInt64) -> Bool {
        slowStartState?.timerSerialsByOrigin[origin] == serial
    }

    private static func nextSlowStartStep(
        _ origin: Handle<OriginEntry>, _ serial: UInt64, after now: MonotonicTime
    ) -> SlowStartStep {
        SlowStartStep(
            origin: origin, dueAt: now.advanced(byMilliseconds: SlowStart.stepMilliseconds), timerSerial: serial)
    }

    // MARK: Cool-downs

    /// Counts a URL that answered 503 without `Retry-After`. A few such URLs are at fault themselves; many in a row are
    /// an outage of their origin.
    ///
    /// - Returns: whether the origin is at fault, so that it cools down.
    mutating func recordOutageURL(of scope: Handle<OriginScope>, url: String) -> Bool {
        guard scopes[scope].coolDown == nil else { return true }
        unavailableURLsByScope[scope, default: []].insert(url)
        guard unavailableURLsByScope[scope, default: []].count >= limits.coolDownURLThreshold else { return false }
        unavailableURLsByScope[scope] = nil
        return true
    }

    /// Whether refused flights wait for the end of a cool-down, or of its probe.
    func isCoolingDown(_ scope: Handle<OriginScope>) -> Bool { scopes[scope].coolDown != nil }

    /// Returns the time until which a cool-down blocks all starts; nil if it blocks none. While a probe runs, that is
    /// just after `now`, because the end of the probe is not known.
    func coolDownEnd(of scope: Handle<OriginScope>, now: MonotonicTime) -> MonotonicTime? {
        switch scopes[scope].coolDown?.phase {
        case .cooling(let until), .refusing(let until): until
        case .probing: now.advanced(byNanoseconds: 1)
        case .due, nil: nil
        }
    }

    /// Whether a flight was the latest probe of a cool-down, so that others come first.
    func isLatestProbe(_ scope: Handle<OriginScope>, _ flight: UInt64) -> Bool {
        scopes[scope].coolDown?.latestProbeFlightID == flight
    }

    /// Begins or prolongs a cool-down after a refusal.
    ///
    /// - Parameter retryAfter: the origin's `Retry-After`.
    /// - Returns: the timer to set; nil if an earlier cool-down stays in force.
    mutating func beginCoolDown(
        _ scope: Handle<OriginScope>, retryAfter: RetryAfter?, using generator: inout SplitMix64Generator,
        now: MonotonicTime
    ) -> CoolDownStart? {
        let present = scopes[scope].coolDown
        if case .cooling = present?.phase, retryAfter == nil { return nil }
        // Transfers that were running when the origin began to refuse are refused too, and count as one refusal.
        let refusals = (present?.consecutiveRefusals ?? 0) + (present?.pauseEnd == nil ? 1 : 0)
        let requestedNanoseconds = (retryAfter?.seconds ?? 0) * 1_000_000_000
        let pause = max(
            CoolDown.refusalBackoff.delayNanoseconds(afterFailures: refusals, random: generator.next()),
            requestedNanoseconds)
        let end = now.advanced(byNanoseconds: pause)
        if let earlier = present?.pauseEnd, earlier >= end { return nil }
        let isRefusing = requestedNanoseconds > Int64(limits.coolDownMilliseconds) * 1_000_000
        let serial = nextTimerSerial()
        let phase = isRefusing ? CoolDown.Phase.refusing(until: end) : .cooling(until: end)
        enterCoolDownPhase(
            CoolDown(
                phase: phase, firstStartedAt: present?.firstStartedAt ?? now, consecutiveRefusals: refusals,
                timerSerial: serial, latestProbeFlightID: present?.latestProbeFlightID), scope)
        return CoolDownStart(endsAt: end, timerSerial: serial, isRefusing: isRefusing)
    }

    /// Ends the pause of a cool-down; one probe may start.
    ///
    /// - Returns: the pool of an origin that was forgotten.
    mutating func coolDownEnded(_ scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        setCoolDownPhase(of: scope, to: .due)
        return forgetIfIdle(scope: scope)
    }

    /// Makes a starting flight the probe of the cool-down, if a probe is due.
    ///
    /// - Returns: whether it is the probe, so that the others wait for it.
    @discardableResult
    mutating func probeStarted(_ scope: Handle<OriginScope>, _ flight: UInt64) -> Bool {
        guard scopes[scope].coolDown?.phase == .due else { return false }
        setCoolDownPhase(of: scope, to: .probing(flight: flight))
        scopes[scope].coolDown?.latestProbeFlightID = flight
        return true
    }

    /// Handles an answer other than 429 and 503, which ends a row of answers with 503.
    mutating func nonOutageAnswerReceived(_ scope: Handle<OriginScope>) {
        if !unavailableURLsByScope.isEmpty { unavailableURLsByScope[scope] = nil }
    }

    /// Ends the cool-down if the probe was answered; otherwise another probe may start.
    ///
    /// - Returns: whether the flight was the probe, so that the scope admits others.
    mutating func probeEnded(_ scope: Handle<OriginScope>, _ flight: UInt64, isAnswered: Bool) -> Bool {
        guard scopes[scope].coolDown?.phase == .probing(flight: flight) else { return false }
        if isAnswered { enterCoolDownPhase(nil, scope) } else { setCoolDownPhase(of: scope, to: .due) }
        return true
    }

    private mutating func setCoolDownPhase(of scope: Handle<OriginScope>, to phase: CoolDown.Phase) {
        var coolDown = scopes[scope].coolDown
        coolDown?.phase = phase
        enterCoolDownPhase(coolDown, scope)
    }

    private mutating func enterCoolDownPhase(_ coolDown: CoolDown?, _ scope: Handle<OriginScope>) {
        let phase = scopes[scope].coolDown?.phase
        precondition(
            CoolDown.isLegal(from: phase, to: coolDown?.phase),
            "scope \(scope) goes from \(String(describing: phase)) to \(String(describing: coolDown?.phase))")
        scopes[scope].coolDown = coolDown
        if !unavailableURLsByScope.isEmpty { unavailableURLsByScope[scope] = nil }
    }

    private mutating func nextTimerSerial() -> UInt64 {
        lastTimerSerial += 1
        return lastTimerSerial
    }

    // MARK: Memory and checks

    /// Whether the name tables list exactly the origins and scopes that exist. O(origins and scopes).
    var hasConsistentNameTables: Bool {
        let credentialed = scopes.indices.filter { !scopes[$0].trustScope.isCredentialFree }
        return originHandles.count == origins.count && scopeHandles.count == credentialed.count
            && origins.indices.allSatisfy { number in
                originHandles.findRecord(withHash: origins[number].nameHash) {
                    origins[$0].name == origins[number].name && origins[$0].workerPool == origins[number].workerPool
                } == number
            }
            && credentialed.allSatisfy {
                scopeHandles[OriginScopeKey(origin: scopes[$0].origin, scope: scopes[$0].trustScope)] == $0
            }
    }

    /// Scopes that count unavailable URLs, with the numbers of those.
    var unavailableURLCounts: [Handle<OriginScope>: Int] { unavailableURLsByScope.mapValues(\.count) }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseSpareCapacity(retaining least: Int) {
        origins.releaseSpareCapacity(retaining: least)
        scopes.releaseSpareCapacity(retaining: least)
        originHandles.releaseSpareCapacity(retaining: least)
        scopeHandles.releaseSpareCapacity(retaining: least)
    }
}
