import EarshotWire
import Testing

@testable import EarshotCore

/// A `ClusterBook` with a clock. Its invariants are checked after each event.
struct BookRig {
    static let start = MonotonicTime(nanoseconds: 5_000_000_000)
    static let origin = EngineOrigin(key: ClusterKey(high: 2, low: 1), limit: 6, spacingMilliseconds: 0)

    var book: ClusterBook
    var now = BookRig.start

    init(slots: Int = 2, isMember: Bool = true) {
        book = ClusterBook(now: now)
        book.slotCount = slots
        guard isMember else { return }
        _ = joined()
        // The first question after a join.
        _ = calls(freeSlots: 1)
        _ = receive(.flightsGranted([], opensAfterMilliseconds: nil))
    }

    // MARK: Names

    static func key(_ number: UInt64) -> ClusterKey { ClusterKey(high: 1, low: number) }

    static func flight(_ number: UInt64) -> LocalFlight {
        LocalFlight(GenerationalHandle(record: Handle(slabIndex: Int(number)), generation: number))
    }

    /// The want of a flight, and its key, have the number of the flight.
    static func want(
        _ number: UInt64, _ lane: EngineWant.Lane = .shared, age: Int = 0, token: UInt64? = nil, isHosted: Bool = false
    ) -> EngineWant {
        EngineWant(
            key: key(number), origin: origin, lane: lane, priority: .normal, ageMilliseconds: age,
            token: token.map { FencingToken($0) }, isHosted: isHosted, record: [1])
    }

    static func end(
        _ number: UInt64, token: UInt64 = 50, _ outcome: EngineCompletion.Outcome = .result([9]),
        isAnswered: Bool = true
    ) -> EngineCompletion {
        EngineCompletion(key: key(number), token: FencingToken(token), outcome: outcome, isAnswered: isAnswered)
    }

    static func attempt(_ number: UInt64) -> AttemptID {
        AttemptID(broker: BrokerInstance(rawValue: 1), flight: number, attempt: 1)
    }

    // MARK: Events

    mutating func joined(members: Int = 3) -> [ClusterEffect] { receive(.joined(NodeID(7), members: members)) }

    mutating func receive(_ event: EngineEvent) -> [ClusterEffect] {
        defer { check() }
        return book.engineEventReceived(event, now: now)
    }

    mutating func answer(_ number: UInt64, _ state: WantAnswer.State) -> [ClusterEffect] {
        receive(.wantsAnswered([WantAnswer(key: Self.key(number), state: state)]))
    }

    mutating func claim(_ number: UInt64, _ lane: EngineWant.Lane = .shared, key: UInt64? = nil) {
        var want = Self.want(number, lane)
        if let key { want.key = Self.key(key) }
        book.addClaim(Self.flight(number), want, since: now, now: now)
        check()
    }

    mutating func grant(_ number: UInt64, token: UInt64 = 50, record: [UInt8]? = nil) -> [ClusterEffect] {
        let grant = EngineGrant(
            key: Self.key(number), token: FencingToken(token), priority: .normal, record: record)
        return receive(.flightsGranted([grant], opensAfterMilliseconds: nil))
    }

    /// A claim that the engine has granted.
    mutating func running(_ number: UInt64, _ lane: EngineWant.Lane = .shared) {
        claim(number, lane)
        _ = calls()
        _ = answer(number, .queued)
        #expect(grant(number) == [.startFlight(Self.flight(number))])
        _ = calls()
    }

    mutating func wait(milliseconds: Int) -> [ClusterEffect] {
        now = now.advanced(byMilliseconds: milliseconds)
        defer { check() }
        return book.timePassed(now: now)
    }

    /// Waits until each claim of this node is asserted again.
    mutating func awaitAssertions() { _ = wait(milliseconds: EngineLimits.assertionIntervalMilliseconds) }

    /// The calls of a pass, without surveys.
    mutating func calls(freeSlots: Int = 0) -> [EngineCall] {
        defer { check() }
        return book.takeEngineCalls(freeSlots: freeSlots, now: now).filter { $0 != .survey }
    }

    /// The calls of a pass, without questions for flights and surveys.
    mutating func statements() -> [EngineCall] {
        calls().filter { if case .takeFlights = $0 { false } else { true } }
    }

    func phase(_ number: UInt64) -> ClusterBook.Phase? { book.claims[Self.flight(number)]?.phase }

    private func check() { #expect(book.checkInvariants() == []) }
}
