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
/// `CoolDown`; `enter` makes each of its transitions. A scope without flights is kept while its cool-down lasts, up to
/// a limit.
///
/// A broker that follows a dead one begins with a slow start of its origins (`SlowStart`).
///
/// Functions that forget an idle origin return its pool. Functions that begin a pause return the timer to set.
package struct OriginGovernor {
    /// Bounds of the governor.
    struct Limits: Equatable {
        /// Maximum number of scopes kept for their cool-downs alone.
        var restingScopes: Int
        /// Longest pause that requests wait for; during a longer one they fail.
        var coolDownMilliseconds: Int
        /// Number of URLs in a row that answer 503 without `Retry-After` before a cool-down begins.
        var outageURLs: Int
        /// Time after the opening in which a new origin has a slow start.
        var slowStartMilliseconds: Int

        init(_ limits: CoreLimits) {
            restingScopes = limits.restingScopes
            coolDownMilliseconds = limits.coolDownMilliseconds
            outageURLs = limits.outageURLs
            slowStartMilliseconds = limits.slowStartMilliseconds
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
        var end: Tick?
        /// Serials of the timers of origins in a slow start.
        var steps: [Handle<OriginEntry>: UInt64] = [:]
    }

    /// Timer for the next step of an origin's slow start.
    struct SlowStartStep: Equatable {
        let origin: Handle<OriginEntry>
        let at: Tick
        let serial: UInt64
    }

    /// Timer for the end of a spacing.
    struct Pause: Equatable {
        let end: Tick
        let serial: UInt64
    }

    /// Timer for the end of a cool-down.
    struct CoolDownStart: Equatable {
        let end: Tick
        let serial: UInt64
        /// Whether requests fail during the cool-down instead of waiting.
        let isRefusing: Bool
    }

    /// Reason why no transfer may start.
    enum Obstacle: Equatable {
        case coolDown
        /// The limit or the spacing of the origin.
        case origin
    }

    /// Copy of the tables for one search through the queue, which shares their storage.
    struct Snapshot {
        fileprivate let origins: Slab<OriginEntry>
        fileprivate let scopes: Slab<OriginScope>

        /// nil if a request of this class may be taken from the queue, also to be refused.
        ///
        /// - Parameter isClaiming: whether the engine of the cluster applies the limit, so that only claims are bounded.
        func obstacle(
            in scope: Handle<OriginScope>, to priority: PriorityClass, isClaiming: Bool = false
        ) -> Obstacle? {
            if !scopes[scope].admits { return .coolDown }
            let origin = scopes[scope].origin
            let admits = isClaiming ? origins[origin].admitsClaim(priority) : origins[origin].admits(priority)
            return scopes[scope].isRefusing || admits ? nil : .origin
        }
    }

    var limits: Limits
    package private(set) var origins = Slab<OriginEntry>()
    package private(set) var scopes = Slab<OriginScope>()
    /// Number of scopes kept for their cool-downs alone.
    private(set) var restingScopes = 0
    /// URLs that have answered 503 without `Retry-After` since the latest other answer, of scopes without a cool-down.
    private var unavailable: [Handle<OriginScope>: Set<String>] = [:]
    /// Origins by name. The records hold the names.
    private var originHandles = HandleTable<OriginEntry>()
    /// Scopes of requests with credentials. Records of origins hold the other scopes.
    private var scopeHandles: [OriginScopeKey: Handle<OriginScope>] = [:]
    private var lastSerial: UInt64 = 0
    /// nil in a broker that follows no dead one, and once all origins have their limits.
    private(set) var slowStart: SlowStart?

    init(limits: Limits) { self.limits = limits }

    // MARK: Queries

    // Functions called for each flight are inlined, because the compiler copies the references to all tables for a call
    // of a non-mutating function.

    var snapshot: Snapshot { Snapshot(origins: origins, scopes: scopes) }

    /// Whether a transfer of this class may start.
    func admits(_ scope: Handle<OriginScope>, _ priority: PriorityClass) -> Bool {
        scopes[scope].admits && !scopes[scope].isRefusing && origins[scopes[scope].origin].admits(priority)
    }

    /// End of a cool-down during which requests fail; nil if they do not fail.
    @inline(__always)
    func refusal(in scope: Handle<OriginScope>) -> Tick? {
        if case .refusing(let until) = scopes[scope].coolDown?.phase { until } else { nil }
    }

    func isPaused(_ origin: Handle<OriginEntry>, serial: UInt64) -> Bool {
        origins.contains(origin) && origins[origin].pause == serial
    }

    func isCooling(_ scope: Handle<OriginScope>, serial: UInt64) -> Bool {
        scopes.contains(scope) && scopes[scope].coolDown?.serial == serial && scopes[scope].coolDown?.end != nil
    }

    /// Scopes in which requests fail. O(scopes).
    var refusingScopes: [Handle<OriginScope>] { scopes.indices.filter { scopes[$0].isRefusing } }

    /// Scopes of a pool in which no transfer may start. O(scopes).
    func closedScopes(of pool: Handle<WorkerPool>) -> [Handle<OriginScope>] {
        scopes.indices.filter { !scopes[$0].admits && origins[scopes[$0].origin].pool == pool }
    }

    // MARK: Origins and scopes

    /// Origin of a URL in a pool; nil if it is unknown.
    ///
    /// - Parameter hash: hash of the origin's name and of the pool.
    @inline(__always)
    func origin(of url: FetchURL, in pool: Handle<WorkerPool>, hash: UInt32) -> Handle<OriginEntry>? {
        originHandles.find(hash) { origins[$0].pool == pool && url.isOf(originNamed: origins[$0].name) }
    }

    /// Adds an origin.
    ///
    /// - Precondition: it is unknown.
    /// - Returns: also the timer of its slow start; nil without one, and before the broker opens.
    mutating func add(_ origin: OriginEntry, now: Tick) -> (origin: Handle<OriginEntry>, step: SlowStartStep?) {
        let number = origins.insert(origin)
        originHandles.insert(number, origin.nameHash)
        return (number, slowStart == nil ? nil : beginSlowStart(of: number, now: now))
    }

    /// Scope of an origin, added if needed. The caller adds a flight to it next.
    mutating func scope(_ trust: TrustScope, at origin: Handle<OriginEntry>) -> Handle<OriginScope> {
        if trust.isShared, let scope = origins[origin].sharedScope { return scope }
        let key = OriginScopeKey(origin: origin, scope: trust)
        if !trust.isShared, let scope = scopeHandles[key] { return scope }
        let scope = scopes.insert(OriginScope(origin: origin, scope: trust))
        if trust.isShared { origins[origin].sharedScope = scope } else { scopeHandles[key] = scope }
        origins[origin].scopes += 1
        return scope
    }

    mutating func flightJoined(_ scope: Handle<OriginScope>) {
        scopes[scope].flights += 1
        setResting(scope, false)
    }

    /// - Returns: the pool of an origin that was forgotten.
    mutating func flightLeft(_ scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        scopes[scope].flights -= 1
        return forgetIfIdle(scope: scope)
    }

    private mutating func setResting(_ scope: Handle<OriginScope>, _ isResting: Bool) {
        guard scopes[scope].isResting != isResting else { return }
        scopes[scope].isResting = isResting
        restingScopes += isResting ? 1 : -1
    }

    /// Frees a scope without flights, unless its cool-down keeps it. Returns the pool of an origin that was forgotten.
    private mutating func forgetIfIdle(scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        guard scopes[scope].flights == 0 else { return nil }
        let isCooling = scopes[scope].coolDown?.end != nil
        let isKept = isCooling && (scopes[scope].isResting || restingScopes < limits.restingScopes)
        setResting(scope, isKept)
        guard !isKept else { return nil }
        if !unavailable.isEmpty { unavailable[scope] = nil }
        let origin = scopes[scope].origin
        if scopes[scope].scope.isShared {
            origins[origin].sharedScope = nil
        } else {
            scopeHandles[OriginScopeKey(origin: origin, scope: scopes[scope].scope)] = nil
        }
        scopes.remove(scope)
        origins[origin].scopes -= 1
        return forgetIfIdle(origin: origin)
    }

    /// Frees an origin without scopes, transfers and spacing. Returns its pool.
    private mutating func forgetIfIdle(origin: Handle<OriginEntry>) -> Handle<WorkerPool>? {
        guard origins[origin].isIdle else { return nil }
        originHandles.remove(origin, origins[origin].nameHash)
        slowStart?.steps[origin] = nil
        let pool = origins[origin].pool
        origins.remove(origin)
        return pool
    }

    // MARK: Transfers

    /// Counts a transfer that this broker starts.
    mutating func startTransfer(at origin: Handle<OriginEntry>, by worker: WorkerID, isHigh: Bool, now: Tick) -> Pause?
    {
        origins[origin].startTransfer(by: worker, isHigh: isHigh, now: now)
        return pause(origin, now: now)
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
        _ terms: OriginEntry.Terms, of origin: Handle<OriginEntry>, now: Tick
    ) -> (pause: Pause?, forgotten: Handle<WorkerPool>?) {
        origins[origin].set(terms, isInSlowStart: slowStart?.steps[origin] != nil)
        let pause = pause(origin, now: now)
        return (pause, forgetIfIdle(origin: origin))
    }

    /// Starts the spacing after an origin's latest start, unless it is over by `now`.
    private mutating func pause(_ origin: Handle<OriginEntry>, now: Tick) -> Pause? {
        let end = origins[origin].pauseEnd
        guard end > now else {
            origins[origin].pause = nil
            return nil
        }
        let serial = nextSerial()
        origins[origin].pause = serial
        return Pause(end: end, serial: serial)
    }

    /// Ends a spacing. The origin may admit another transfer.
    ///
    /// - Returns: the pool of an origin that was forgotten.
    mutating func pauseEnded(at origin: Handle<OriginEntry>) -> Handle<WorkerPool>? {
        origins[origin].pause = nil
        return forgetIfIdle(origin: origin)
    }

    /// Counts open claims of flights of an origin.
    mutating func claimed(_ change: Int32, at origin: Handle<OriginEntry>) { origins[origin].claims += change }

    // MARK: Slow start

    /// Begins the slow start of all origins, known ones and later ones.
    mutating func awaitSlowStart() {
        slowStart = SlowStart()
        for origin in origins.indices { _ = beginSlowStart(of: origin, now: Tick(nanoseconds: .min)) }
    }

    /// Begins the steps: transfers may start from now on.
    ///
    /// - Returns: the timers to set.
    mutating func openSlowStart(now: Tick) -> [SlowStartStep] {
        guard let slowStart, slowStart.end == nil else { return [] }
        self.slowStart?.end = now.advanced(byMilliseconds: limits.slowStartMilliseconds)
        return slowStart.steps.map { Self.step($0.key, $0.value, after: now) }.sorted { $0.serial < $1.serial }
    }

    private mutating func beginSlowStart(of origin: Handle<OriginEntry>, now: Tick) -> SlowStartStep? {
        guard let end = slowStart?.end, now >= end else {
            guard origins[origin].pool == WorkerPool.web else { return nil }
            origins[origin].beginSlowStart()
            let serial = nextSerial()
            slowStart?.steps[origin] = serial
            return slowStart?.end == nil ? nil : Self.step(origin, serial, after: now)
        }
        if slowStart?.steps.isEmpty == true { slowStart = nil }
        return nil
    }

    /// Doubles the limit of an origin, which may then admit more transfers.
    ///
    /// - Returns: the timer of the next step; nil after the last one.
    mutating func slowStartStep(of origin: Handle<OriginEntry>, now: Tick) -> SlowStartStep? {
        guard let serial = slowStart?.steps[origin] else { return nil }
        origins[origin].slowStartStep()
        if origins[origin].isInSlowStart { return Self.step(origin, serial, after: now) }
        slowStart?.steps[origin] = nil
        return nil
    }

    func isInSlowStart(_ origin: Handle<OriginEntry>, serial: UInt64) -> Bool {
        slowStart?.steps[origin] == serial
    }

    private static func step(_ origin: Handle<OriginEntry>, _ serial: UInt64, after now: Tick) -> SlowStartStep {
        SlowStartStep(origin: origin, at: now.advanced(byMilliseconds: SlowStart.stepMilliseconds), serial: serial)
    }

    // MARK: Cool-downs

    /// Counts a URL that answered 503 without `Retry-After`. A few such URLs are at fault themselves; many in a row are
    /// an outage of their origin.
    ///
    /// - Returns: whether the answer is one of the origin, so that the origin cools down.
    mutating func isOutage(of scope: Handle<OriginScope>, url: String) -> Bool {
        guard scopes[scope].coolDown == nil else { return true }
        unavailable[scope, default: []].insert(url)
        guard unavailable[scope, default: []].count >= limits.outageURLs else { return false }
        unavailable[scope] = nil
        return true
    }

    /// Whether refused flights wait for the end of a cool-down, or of its probe.
    func isCoolingDown(_ scope: Handle<OriginScope>) -> Bool { scopes[scope].coolDown != nil }

    /// Time until which a cool-down is an obstacle to all starts; nil if it is none. Just after `now` while a probe
    /// runs, because the end of that is not known.
    func coolDownEnd(of scope: Handle<OriginScope>, now: Tick) -> Tick? {
        switch scopes[scope].coolDown?.phase {
        case .cooling(let until), .refusing(let until): until
        case .probing: now.advanced(byNanoseconds: 1)
        case .due, nil: nil
        }
    }

    /// Whether a flight was the latest probe of a cool-down, so that others come first.
    func hasProbed(_ scope: Handle<OriginScope>, _ flight: UInt64) -> Bool {
        scopes[scope].coolDown?.latestProbe == flight
    }

    /// Begins or prolongs a cool-down after a refusal.
    ///
    /// - Parameter retryAfter: the origin's `Retry-After`.
    /// - Returns: the timer to set; nil if an earlier cool-down stays in force.
    mutating func cool(
        _ scope: Handle<OriginScope>, retryAfter: RetryAfter?, using generator: inout SplitMix, now: Tick
    ) -> CoolDownStart? {
        let present = scopes[scope].coolDown
        if case .cooling = present?.phase, retryAfter == nil { return nil }
        // Transfers that were running when the origin began to refuse are refused too, and count as one refusal.
        let strikes = (present?.refusalsInRow ?? 0) + (present?.end == nil ? 1 : 0)
        let requestedNanoseconds = (retryAfter?.seconds ?? 0) * 1_000_000_000
        let pause = max(CoolDown.backoff.pause(afterFailures: strikes, random: generator.next()), requestedNanoseconds)
        let end = now.advanced(byNanoseconds: pause)
        if let earlier = present?.end, earlier >= end { return nil }
        let isRefusing = requestedNanoseconds > Int64(limits.coolDownMilliseconds) * 1_000_000
        let serial = nextSerial()
        let phase = isRefusing ? CoolDown.Phase.refusing(until: end) : .cooling(until: end)
        enter(
            CoolDown(
                phase: phase, since: present?.since ?? now, refusalsInRow: strikes, serial: serial,
                latestProbe: present?.latestProbe), scope)
        return CoolDownStart(end: end, serial: serial, isRefusing: isRefusing)
    }

    /// Ends the pause of a cool-down; one probe may start.
    ///
    /// - Returns: the pool of an origin that was forgotten.
    mutating func coolDownEnded(_ scope: Handle<OriginScope>) -> Handle<WorkerPool>? {
        move(scope, to: .due)
        return forgetIfIdle(scope: scope)
    }

    /// Makes a flight that starts the probe, if a probe is due.
    ///
    /// - Returns: whether it is the probe, so that the others wait for it.
    @discardableResult
    mutating func probeStarted(_ scope: Handle<OriginScope>, _ flight: UInt64) -> Bool {
        guard scopes[scope].coolDown?.phase == .due else { return false }
        move(scope, to: .probing(flight: flight))
        scopes[scope].coolDown?.latestProbe = flight
        return true
    }

    /// Notes an answer other than 429 and 503, which ends a row of 503.
    mutating func answered(_ scope: Handle<OriginScope>) {
        if !unavailable.isEmpty { unavailable[scope] = nil }
    }

    /// Ends the cool-down if the probe was answered; otherwise another probe may start.
    ///
    /// - Returns: whether the flight was the probe, so that the scope admits others.
    mutating func probeEnded(_ scope: Handle<OriginScope>, _ flight: UInt64, isAnswered: Bool) -> Bool {
        guard scopes[scope].coolDown?.phase == .probing(flight: flight) else { return false }
        if isAnswered { enter(nil, scope) } else { move(scope, to: .due) }
        return true
    }

    private mutating func move(_ scope: Handle<OriginScope>, to phase: CoolDown.Phase) {
        var coolDown = scopes[scope].coolDown
        coolDown?.phase = phase
        enter(coolDown, scope)
    }

    private mutating func enter(_ coolDown: CoolDown?, _ scope: Handle<OriginScope>) {
        let phase = scopes[scope].coolDown?.phase
        precondition(
            CoolDown.isLegal(from: phase, to: coolDown?.phase),
            "scope \(scope) goes from \(String(describing: phase)) to \(String(describing: coolDown?.phase))")
        scopes[scope].coolDown = coolDown
        if !unavailable.isEmpty { unavailable[scope] = nil }
    }

    private mutating func nextSerial() -> UInt64 {
        lastSerial += 1
        return lastSerial
    }

    // MARK: Memory and checks

    /// Whether the name tables list exactly the origins and scopes that exist. O(origins and scopes).
    var namesAreComplete: Bool {
        let credentialed = scopes.indices.filter { !scopes[$0].scope.isShared }
        return originHandles.count == origins.count && scopeHandles.count == credentialed.count
            && origins.indices.allSatisfy { number in
                originHandles.find(origins[number].nameHash) {
                    origins[$0].name == origins[number].name && origins[$0].pool == origins[number].pool
                } == number
            }
            && credentialed.allSatisfy {
                scopeHandles[OriginScopeKey(origin: scopes[$0].origin, scope: scopes[$0].scope)] == $0
            }
    }

    /// Scopes that count unavailable URLs, with the numbers of those.
    var unavailableCounts: [Handle<OriginScope>: Int] { unavailable.mapValues(\.count) }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) {
        origins.releaseRoom(least: least)
        scopes.releaseRoom(least: least)
        originHandles.releaseRoom(least: least)
        scopeHandles.releaseRoom(least: least)
    }
}
