import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The governor in isolation: each event in each phase of a cool-down, limits, spacings, and the end of origins and
/// scopes.
struct OriginGovernorTests {
    private static let start = MonotonicTime(nanoseconds: 1_000_000_000)
    private static let worker = WorkerID(rawValue: 1)

    /// Scope of requests with the credentials of a user.
    private static func privateScope(_ user: Int) throws -> TrustScope {
        let url = try FetchURL("http://u\(user)@a.example/")
        return CredentialRule.standard.trustScope(of: HTTPRequest(method: .get, url: url, fields: HeaderFields()))
    }

    private static func terms(_ limit: Int, _ spacing: Int = 0) -> OriginEntry.Terms { (limit, spacing, true, 0) }

    private static func retryAfter(_ seconds: Int) -> RetryAfter? { RetryAfter(String(seconds), now: 0) }

    /// A governor with one origin of pool 7, and one scope with one flight.
    private struct Bed {
        var governor: OriginGovernor
        let origin: Handle<OriginEntry>
        let scope: Handle<OriginScope>
        var generator = SplitMix64Generator(seed: 1)
        var now = OriginGovernorTests.start

        init(limit: Int = 6, spacing: Int = 0, resting: Int = 10) throws {
            var limits = CoreLimits()
            limits.maximumCoolDownOnlyScopes = resting
            governor = OriginGovernor(limits: OriginGovernor.Limits(limits))
            let url = try FetchURL("http://a.example/")
            var entry = OriginEntry(of: url, nameHash: UInt32(truncatingIfNeeded: url.originHash), pool: 7)
            entry.setTerms(OriginGovernorTests.terms(limit, spacing))
            origin = governor.addOrigin(entry, now: now).origin
            scope = governor.scope(.credentialFree, at: origin)
            governor.flightJoined(scope)
        }

        var phase: CoolDown.Phase? { governor.scopes[scope].coolDown?.phase }

        mutating func refuse(_ seconds: Int?) -> OriginGovernor.CoolDownStart? {
            governor.beginCoolDown(
                scope, retryAfter: seconds.flatMap { OriginGovernorTests.retryAfter($0) }, using: &generator, now: now)
        }

        /// Refuses a request, which starts or extends the cool-down.
        mutating func refused(_ seconds: Int?) throws -> OriginGovernor.CoolDownStart {
            let start = refuse(seconds)
            return try #require(start)
        }

        mutating func startTransfer(isHigh: Bool = false) -> OriginGovernor.Pause? {
            governor.startTransfer(at: origin, by: OriginGovernorTests.worker, isHigh: isHigh, now: now)
        }

        func obstacle(_ priority: PriorityClass = .normal) -> OriginGovernor.StartBlocker? {
            governor.snapshot.startBlocker(in: scope, to: priority)
        }

        /// Brings the scope into a phase.
        mutating func enter(_ phase: Phase) {
            switch phase {
            case .open: break
            case .cooling: _ = refuse(100)
            case .refusing: _ = refuse(700)
            case .due:
                _ = refuse(100)
                _ = governor.coolDownEnded(scope)
            case .probing:
                enter(.due)
                governor.probeStarted(scope, 1)
            }
        }
    }

    // MARK: Cool-downs

    enum Phase: CaseIterable {
        case open, cooling, refusing, due, probing

        init(_ phase: CoolDown.Phase?) {
            self =
                switch phase {
                case nil: .open
                case .cooling: .cooling
                case .refusing: .refusing
                case .due: .due
                case .probing: .probing
                }
        }
    }

    enum Event: CaseIterable {
        case refused, refusedForShort, refusedForLong, flightStarts, probeAnswered, probeUnanswered, otherAnswered
    }

    private static func expected(_ event: Event, _ phase: Phase) -> Phase {
        switch (event, phase) {
        case (.refused, .open), (.refused, .due), (.refused, .probing): .cooling
        case (.refusedForShort, .open), (.refusedForShort, .due), (.refusedForShort, .probing): .cooling
        case (.refusedForLong, _): .refusing
        case (.flightStarts, .due): .probing
        case (.probeAnswered, .probing): .open
        case (.probeUnanswered, .probing): .due
        case (.refused, _), (.refusedForShort, _), (.flightStarts, _), (.probeAnswered, _), (.probeUnanswered, _),
            (.otherAnswered, _):
            phase
        }
    }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase of a cool-down leads where the diagram says`(event: Event, phase: Phase) throws {
        var bed = try Bed()
        bed.enter(phase)
        let before = bed.phase
        let isReported: Bool
        switch event {
        case .refused: isReported = bed.refuse(nil) != nil
        case .refusedForShort: isReported = bed.refuse(50) != nil
        case .refusedForLong: isReported = bed.refuse(800)?.isRefusing == true
        case .flightStarts:
            bed.governor.probeStarted(bed.scope, 2)
            isReported = bed.phase != before
        case .probeAnswered: isReported = bed.governor.probeEnded(bed.scope, 1, isAnswered: true)
        case .probeUnanswered: isReported = bed.governor.probeEnded(bed.scope, 1, isAnswered: false)
        case .otherAnswered: isReported = bed.governor.probeEnded(bed.scope, 2, isAnswered: true)
        }
        #expect(Phase(bed.phase) == Self.expected(event, phase))
        #expect(isReported == (bed.phase != before))
        #expect(bed.governor.checkInvariants() == [])
    }

    @Test(arguments: Phase.allCases) func `only a request that may start or fail has its turn`(phase: Phase) throws {
        var bed = try Bed()
        bed.enter(phase)
        #expect(bed.obstacle() == (phase == .cooling || phase == .probing ? .coolDown : nil))
        #expect(bed.governor.admitsTransfer(bed.scope, .normal) == (phase == .open || phase == .due))
        #expect((bed.governor.coolDownRefusalEnd(in: bed.scope) != nil) == (phase == .refusing))
        #expect(bed.governor.refusingScopes == (phase == .refusing ? [bed.scope] : []))
        #expect(bed.governor.blockedScopes(of: 7) == (phase == .cooling || phase == .probing ? [bed.scope] : []))
        #expect(bed.governor.blockedScopes(of: 8) == [])
    }

    @Test func `the diagram of a cool-down has these transitions and no others`() {
        let until = MonotonicTime(nanoseconds: 1)
        let phases: [CoolDown.Phase?] = [
            nil, .cooling(until: until), .refusing(until: until), .due, .probing(flight: 1),
        ]
        let legal = phases.map { from in phases.map { CoolDown.isLegal(from: from, to: $0) } }
        #expect(
            legal == [
                [false, true, true, false, false], [false, true, true, true, false], [false, true, true, true, false],
                [false, true, true, false, true], [true, true, true, true, false],
            ])
    }

    @Test func `a timer is stale once its cool-down was prolonged or its pause has ended`() throws {
        var bed = try Bed()
        let first = try bed.refused(100)
        #expect(bed.governor.isCurrentCoolDownTimer(bed.scope, serial: first.timerSerial))
        let second = try bed.refused(200)
        #expect(!bed.governor.isCurrentCoolDownTimer(bed.scope, serial: first.timerSerial))
        #expect(second.endsAt == bed.now.advanced(byMilliseconds: 200_000))
        #expect(bed.governor.coolDownEnded(bed.scope) == nil)
        #expect(!bed.governor.isCurrentCoolDownTimer(bed.scope, serial: second.timerSerial))
    }

    @Test func `the pause doubles with each refusal of a probe, up to a minute`() throws {
        var bed = try Bed()
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let start = try bed.refused(nil)
            let pause = start.endsAt.milliseconds(since: bed.now)
            #expect((seconds * 500...seconds * 1_000).contains(pause))
            // Refusals of concurrent transfers count once, together with the probe.
            #expect(bed.refuse(nil) == nil)
            bed.now = start.endsAt
            _ = bed.governor.coolDownEnded(bed.scope)
            bed.governor.probeStarted(bed.scope, 1)
        }
    }

    // MARK: Limits and spacings

    @Test(arguments: [
        // Limit, transfers of class high, of lower classes; may start: high, lower.
        (0, 0, 0, false, false), (1, 0, 0, true, true), (1, 1, 0, false, false), (3, 0, 2, true, true),
        (3, 1, 2, false, false), (4, 0, 2, true, true), (4, 0, 3, true, false), (4, 1, 2, true, true),
        (4, 2, 2, false, false), (6, 0, 5, true, false), (6, 1, 5, false, false),
    ]) func `a limit of four or more keeps one transfer for class high`(
        limit: Int, high: Int, lower: Int, admitsHigh: Bool, admitsLower: Bool
    ) throws {
        var bed = try Bed(limit: limit)
        for _ in 0..<high { #expect(bed.startTransfer(isHigh: true) == nil) }
        for _ in 0..<lower { #expect(bed.startTransfer() == nil) }
        #expect((bed.obstacle(.high) == nil) == admitsHigh)
        #expect((bed.obstacle(.normal) == nil) == admitsLower)
        #expect(bed.governor.checkInvariants() == [])
        for _ in 0..<high { #expect(bed.governor.endTransfer(at: bed.origin, isHigh: true) == nil) }
        for _ in 0..<lower { #expect(bed.governor.endTransfer(at: bed.origin, isHigh: false) == nil) }
        #expect((bed.obstacle() == nil) == (limit > 0))
    }

    @Test func `transfers above a lowered limit continue, and none starts until they ended`() throws {
        var bed = try Bed(limit: 3)
        for _ in 0..<3 { _ = bed.startTransfer() }
        let (pause, forgotten) = bed.governor.setTerms(Self.terms(1), of: bed.origin, now: bed.now)
        #expect(pause == nil && forgotten == nil)
        for _ in 0..<3 {
            #expect(bed.obstacle() == .originLimitOrSpacing)
            #expect(bed.governor.checkInvariants() == [])
            #expect(bed.governor.endTransfer(at: bed.origin, isHigh: false) == nil)
        }
        #expect(bed.obstacle() == nil)
        for _ in 0..<2 { _ = bed.startTransfer() }
        #expect(bed.governor.checkInvariants() == ["9: origin http://a.example is over its limit"])
    }

    @Test func `a spacing lasts from the latest start until its own timer`() throws {
        var bed = try Bed(spacing: 100)
        let firstPause = bed.startTransfer()
        let first = try #require(firstPause)
        #expect(first.endsAt == bed.now.advanced(byMilliseconds: 100))
        #expect(bed.obstacle(.high) == .originLimitOrSpacing)
        let secondPause = bed.startTransfer()
        let second = try #require(secondPause)
        #expect(second.endsAt == first.endsAt)
        #expect(!bed.governor.isCurrentSpacingTimer(bed.origin, serial: first.timerSerial))
        #expect(bed.governor.isCurrentSpacingTimer(bed.origin, serial: second.timerSerial))
        bed.now = second.endsAt
        #expect(bed.governor.pauseEnded(at: bed.origin) == nil)
        #expect(!bed.governor.isCurrentSpacingTimer(bed.origin, serial: second.timerSerial))
        #expect(bed.obstacle() == nil)
    }

    @Test(arguments: [(50, 60, nil), (200, 30, 170), (0, 0, nil), (31, 30, 1)] as [(Int, Int, Int?)])
    func `another spacing counts from the last start`(spacing: Int, elapsed: Int, left: Int?) throws {
        var bed = try Bed(spacing: 1_000)
        _ = bed.startTransfer()
        bed.now = bed.now.advanced(byMilliseconds: elapsed)
        let (pause, _) = bed.governor.setTerms(Self.terms(6, spacing), of: bed.origin, now: bed.now)
        #expect(pause?.endsAt.milliseconds(since: bed.now) == left)
        #expect((bed.obstacle() == nil) == (left == nil))
    }

    // MARK: The end of origins and scopes

    @Test(arguments: [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    func `an origin is forgotten with its last flight, transfer and spacing, in any order`(order: [Int]) throws {
        var bed = try Bed(spacing: 100)
        _ = bed.startTransfer()
        for (step, event) in order.enumerated() {
            let forgotten =
                switch event {
                case 0: bed.governor.flightLeft(bed.scope)
                case 1: bed.governor.endTransfer(at: bed.origin, isHigh: false)
                default: bed.governor.pauseEnded(at: bed.origin)
                }
            #expect(forgotten == (step == 2 ? 7 : nil))
            #expect(bed.governor.checkInvariants() == [])
        }
        #expect(bed.governor.origins.count == 0 && bed.governor.scopes.count == 0)
        let url = try FetchURL("http://a.example/")
        #expect(bed.governor.origin(of: url, in: 7, hash: UInt32(truncatingIfNeeded: url.originHash)) == nil)
    }

    @Test func `a scope without flights is kept for its cool-down, up to the limit`() throws {
        var bed = try Bed(resting: 1)
        let other = bed.governor.scope(try Self.privateScope(1), at: bed.origin)
        bed.governor.flightJoined(other)
        for scope in [bed.scope, other] {
            _ = bed.governor.beginCoolDown(scope, retryAfter: Self.retryAfter(10), using: &bed.generator, now: bed.now)
        }
        #expect(bed.governor.flightLeft(bed.scope) == nil)
        #expect(bed.governor.coolDownOnlyScopeCount == 1)
        #expect(bed.governor.flightLeft(other) == nil)
        #expect(bed.governor.scopes.count == 1 && bed.governor.coolDownOnlyScopeCount == 1)
        // A new flight meets the cool-down.
        #expect(bed.governor.scope(.credentialFree, at: bed.origin) == bed.scope)
        bed.governor.flightJoined(bed.scope)
        #expect(bed.governor.coolDownOnlyScopeCount == 0)
        #expect(bed.obstacle() == .coolDown)
        #expect(bed.governor.flightLeft(bed.scope) == nil)
        #expect(bed.governor.coolDownEnded(bed.scope) == 7)
        #expect(bed.governor.origins.count == 0 && bed.governor.coolDownOnlyScopeCount == 0)
    }

    @Test(arguments: [1, 2, 3]) func `the invariants hold after each of 5,000 random events`(seed: UInt64) throws {
        var random = SplitMix64Generator(seed: seed)
        var bed = try Bed(limit: 5, spacing: 20, resting: 2)
        let one = try Self.privateScope(1)
        let two = try Self.privateScope(2)
        var running: [Bool] = []
        var flights = [bed.scope]
        for _ in 0..<5_000 {
            bed.now = bed.now.advanced(byMilliseconds: Int.random(in: 0...15, using: &random))
            let isHigh = Bool.random(using: &random)
            let scope = flights[0]
            switch Int.random(in: 0..<8, using: &random) {
            case 0:
                guard flights.count < 10 else { continue }
                let trust = [.credentialFree, one, two].randomElement(using: &random) ?? .credentialFree
                let joined = bed.governor.scope(trust, at: bed.origin)
                bed.governor.flightJoined(joined)
                flights.append(joined)
            case 1:
                // The last flight stays, and keeps the origin in the table.
                guard flights.count > 1 else { continue }
                #expect(bed.governor.flightLeft(flights.removeLast()) == nil)
            case 2:
                guard bed.governor.admitsTransfer(scope, isHigh ? .high : .low) else { continue }
                _ = bed.startTransfer(isHigh: isHigh)
                bed.governor.probeStarted(scope, 1)
                running.append(isHigh)
            case 3:
                guard let ended = running.popLast() else { continue }
                #expect(bed.governor.endTransfer(at: bed.origin, isHigh: ended) == nil)
            case 4:
                guard let scope = flights.randomElement(using: &random) else { continue }
                let seconds = [nil, 5, 700].randomElement(using: &random) ?? nil
                let retryAfter = seconds.flatMap { OriginGovernorTests.retryAfter($0) }
                _ = bed.governor.beginCoolDown(scope, retryAfter: retryAfter, using: &bed.generator, now: bed.now)
            case 5:
                for scope in bed.governor.scopes.indices where bed.governor.scopes[scope].coolDown?.pauseEnd != nil {
                    #expect(bed.governor.coolDownEnded(scope) == nil)
                }
            case 6: _ = bed.governor.probeEnded(scope, 1, isAnswered: isHigh)
            default:
                guard bed.governor.origins[bed.origin].isInSpacingPause else { continue }
                #expect(bed.governor.pauseEnded(at: bed.origin) == nil)
            }
            #expect(bed.governor.checkInvariants() == [])
        }
    }
}
