import EarshotWire
import Testing

@testable import EarshotCore

/// Claims, hosted attempts, membership and calls of the book, without a core and an engine.
@Suite struct ClusterBookTests {
    private static let start = Tick(nanoseconds: 5_000_000_000)

    /// A book with a clock, whose invariants are checked after each event.
    private struct Rig {
        var book: ClusterBook
        var now = ClusterBookTests.start

        init(slots: Int = 2) {
            book = ClusterBook(now: now)
            book.slots = slots
        }

        mutating func joined(members: Int = 3) -> [ClusterEffect] { receive(.joined(NodeID(7), members: members)) }

        mutating func receive(_ event: EngineEvent) -> [ClusterEffect] {
            defer { #expect(book.checkInvariants() == []) }
            return book.received(event, now: now)
        }

        mutating func claim(_ number: UInt64, _ lane: EngineWant.Lane = .shared) -> [ClusterEffect] {
            defer { #expect(book.checkInvariants() == []) }
            return book.claim(LocalFlight(id: number), ClusterBookTests.want(number, lane), now: now)
        }

        mutating func grant(_ number: UInt64, token: UInt64 = 50, record: [UInt8]? = nil) -> [ClusterEffect] {
            let grant = EngineGrant(
                key: ClusterBookTests.key(number), token: FencingToken(token), priority: .normal, record: record)
            return receive(.granted([grant], opensAfterMilliseconds: nil))
        }

        mutating func calls(freeSlots: Int = 0) -> [EngineCall] {
            defer { #expect(book.checkInvariants() == []) }
            return book.takeCalls(freeSlots: freeSlots, now: now)
        }

        mutating func pass(milliseconds: Int) -> [ClusterEffect] {
            now = now.advanced(byMilliseconds: milliseconds)
            defer { #expect(book.checkInvariants() == []) }
            return book.timePassed(now: now)
        }

        func phase(_ number: UInt64) -> ClusterBook.Phase? { book.claims[LocalFlight(id: number)]?.phase }
    }

    private static func key(_ number: UInt64) -> ClusterKey { ClusterKey(high: 1, low: number) }

    private static let origin = EngineOrigin(key: ClusterKey(high: 2, low: 1), limit: 6, spacingMilliseconds: 0)

    private static func want(
        _ number: UInt64, _ lane: EngineWant.Lane = .shared, age: Int = 0, token: FencingToken? = nil,
        isHosted: Bool = false
    ) -> EngineWant {
        EngineWant(
            key: key(number), origin: origin, lane: lane, priority: .normal, ageMilliseconds: age, token: token,
            isHosted: isHosted, record: [1])
    }

    private func flight(_ number: UInt64) -> LocalFlight { LocalFlight(id: number) }

    private func completion(
        _ number: UInt64, token: UInt64 = 50, _ outcome: EngineCompletion.Outcome = .result([9]),
        isAnswered: Bool = true
    ) -> EngineCompletion {
        EngineCompletion(key: Self.key(number), token: FencingToken(token), outcome: outcome, isAnswered: isAnswered)
    }

    @Test func `each transition is the diagram's`() {
        let phases: [ClusterBook.Phase?] = [
            nil, .waiting, .wanted, .running(FencingToken(2)), .uncoordinated, .overtaken,
        ]
        let legal = phases.map { from in phases.map { ClusterBook.isLegal(from: from, to: $0) ? "x" : "." }.joined() }
        // Columns and rows: absent, waiting, wanted, running, uncoordinated, overtaken.
        #expect(legal == [".x....", "x.x.x.", "xx.x..", "x....x", "x..x.x", "x....."])
    }

    @Test func `a claim is wanted, granted, run and ended`() {
        var rig = Rig()
        _ = rig.joined()
        #expect(rig.claim(1) == [])
        #expect(rig.calls(freeSlots: 2) == [.want([Self.want(1)]), .take(slots: 2)])
        #expect(rig.receive(.wanted([WantAnswer(key: Self.key(1), state: .queued)])) == [])
        #expect(rig.grant(1) == [.start(flight(1))])
        rig.book.ended(flight(1), .result([9]), isAnswered: true)
        #expect(rig.phase(1) == nil)
        #expect(rig.calls().prefix(1) == [.done([completion(1)])])
        #expect(rig.book.openClaims == 0)
    }

    @Test func `the window is four claims for each slot, and a start makes room`() {
        var rig = Rig(slots: 2)
        _ = rig.joined()
        for number in 1...8 as ClosedRange<UInt64> {
            #expect(rig.book.hasRoom)
            _ = rig.claim(number)
        }
        #expect(!rig.book.hasRoom)
        _ = rig.calls(freeSlots: 2)
        _ = rig.grant(3)
        #expect(rig.book.hasRoom)
    }

    @Test func `a result of another node ends a claim, whether it is pushed or an answer`() {
        for isPushed in [true, false] {
            var rig = Rig()
            _ = rig.joined()
            _ = rig.claim(1)
            _ = rig.calls()
            let event =
                isPushed
                ? EngineEvent.result(Self.key(1), [5]) : .wanted([WantAnswer(key: Self.key(1), state: .ended([5]))])
            #expect(rig.receive(event) == [.result(flight(1), [5])])
            #expect(rig.receive(event) == [])
            #expect(rig.phase(1) == nil)
        }
    }

    @Test func `wants are asserted every two seconds with their age, until they end`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        _ = rig.pass(milliseconds: 500)
        _ = rig.claim(2)
        #expect(rig.calls().first == .want([Self.want(2)]))
        #expect(rig.book.deadline == Self.start.advanced(byMilliseconds: 2_000))
        _ = rig.pass(milliseconds: 1_500)
        #expect(rig.calls().first == .want([Self.want(1, age: 2_000)]))
        #expect(rig.calls() == [])
        _ = rig.receive(.result(Self.key(1), []))
        _ = rig.pass(milliseconds: 2_000)
        #expect(rig.calls().first == .want([Self.want(2, age: 3_500)]))
    }

    @Test func `a promoted claim is asserted at once`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        rig.book.promote(flight(1), to: .high)
        rig.book.promote(flight(1), to: .low)
        var want = Self.want(1)
        want.priority = .high
        #expect(rig.calls().first == .want([want]))
    }

    // MARK: Withdrawals

    @Test func `a withdrawn claim is withdrawn from the engine`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        #expect(rig.book.withdraw(flight(1)) == .nothing)
        #expect(rig.book.withdraw(flight(1)) == .nothing)
        #expect(rig.calls() == [.unwant([Self.key(1)])])
        // The grant was on its way.
        #expect(rig.grant(1) == [])
        #expect(rig.calls().first == .done([completion(1, .released, isAnswered: false)]))
    }

    @Test func `a claim that was never sent needs no call`() {
        var rig = Rig()
        _ = rig.claim(1)
        #expect(rig.book.withdraw(flight(1)) == .nothing)
        _ = rig.joined()
        #expect(rig.calls() == [])
    }

    @Test func `a withdrawn attempt goes on for other nodes until the engine reports that none wants it`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        #expect(rig.book.withdraw(flight(1)) == .host(FencingToken(50)))
        #expect(rig.calls().first == .unwant([Self.key(1)]))
        #expect(rig.receive(.aborted(Self.key(1), FencingToken(49))) == [])
        #expect(rig.receive(.aborted(Self.key(1), FencingToken(50))) == [.abort(Self.key(1), FencingToken(50))])
        // A new flight of the same key does not inherit the cancellation.
        _ = rig.claim(1)
        _ = rig.calls()
        rig.book.hostedEnded(Self.key(1), FencingToken(50), .result([9]), isAnswered: false)
        #expect(rig.calls().first == .done([completion(1, .released, isAnswered: false)]))
        #expect(rig.grant(1, token: 51) == [.start(flight(1))])
    }

    @Test func `a flight of this node alone is cancelled at once`() {
        for lane in [EngineWant.Lane.pinned, .credentialed] {
            var rig = Rig()
            _ = rig.joined()
            _ = rig.claim(1, lane)
            _ = rig.calls()
            _ = rig.grant(1)
            #expect(rig.book.withdraw(flight(1)) == .cancel(FencingToken(50)))
            rig.book.hostedEnded(Self.key(1), FencingToken(50), .released, isAnswered: false)
            #expect(rig.calls().first == .unwant([Self.key(1)]))
        }
    }

    @Test func `an attempt that is released is withdrawn first`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        rig.book.ended(flight(1), .released, isAnswered: false)
        #expect(
            rig.calls().prefix(2) == [.unwant([Self.key(1)]), .done([completion(1, .released, isAnswered: false)])])
    }

    // MARK: Hosted attempts

    @Test func `an attempt for another node is hosted, and its result is delivered`() {
        var rig = Rig()
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
        #expect(rig.grant(5, record: [3]) == [.host(Self.key(5), FencingToken(50), record: [3], .normal)])
        rig.book.hostedEnded(Self.key(5), FencingToken(50), .result([9]), isAnswered: true)
        #expect(rig.calls().first == .done([completion(5)]))
        rig.book.hostedEnded(Self.key(5), FencingToken(50), .result([9]), isAnswered: true)
        #expect(rig.calls() == [])
    }

    @Test func `hosted attempts are asserted after a loss, once their origin is known`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.grant(5, record: [1])
        _ = rig.grant(6, token: 51, record: [1])
        rig.book.setOrigin(Self.origin, of: Self.key(5))
        _ = rig.receive(.left(.closed))
        _ = rig.joined()
        #expect(rig.calls() == [.want([Self.want(5, token: FencingToken(50), isHosted: true)])])
        _ = rig.receive(.wanted([WantAnswer(key: Self.key(5), state: .stale)]))
        rig.book.hostedEnded(Self.key(5), FencingToken(50), .result([9]), isAnswered: true)
        #expect(rig.calls() == [])
    }

    // MARK: Questions

    @Test func `the engine is asked for flights only if some may wait`() {
        var rig = Rig()
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 100) == [.take(slots: 64)])
        #expect(rig.calls(freeSlots: 100) == [])
        _ = rig.receive(.granted([], opensAfterMilliseconds: 300))
        #expect(rig.calls(freeSlots: 100) == [])
        #expect(rig.book.deadline == rig.now.advanced(byMilliseconds: 300))
        _ = rig.pass(milliseconds: 300)
        #expect(rig.calls(freeSlots: 100) == [.take(slots: 64)])
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        _ = rig.receive(.workWaits)
        #expect(rig.calls() == [])
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
        // All slots were filled, so more may wait.
        _ = rig.grant(5, record: [])
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        // A wake-up may be lost.
        _ = rig.pass(milliseconds: 2_000)
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
    }

    @Test func `a node without free slots wakes another for its wants`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        #expect(rig.calls() == [.want([Self.want(1)]), .take(slots: 0)])
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
    }

    // MARK: Without the engine

    @Test func `after five seconds without the engine claims start with a share of the limits`() {
        var rig = Rig()
        _ = rig.joined(members: 3)
        _ = rig.claim(1)
        _ = rig.calls()
        #expect(rig.book.localLimit(of: 6) == nil)
        _ = rig.receive(.left(.timedOut))
        #expect(rig.phase(1) == .waiting)
        #expect(rig.pass(milliseconds: 4_999) == [])
        _ = rig.receive(.left(.unreachable("refused")))
        #expect(rig.book.deadline == Self.start.advanced(byMilliseconds: 5_000))
        #expect(rig.pass(milliseconds: 1) == [.mode(isCoordinated: false, members: 3), .start(flight(1))])
        #expect(rig.book.localLimit(of: 6) == 2)
        #expect(rig.book.localLimit(of: 2) == 1)
        for number in 2...20 as ClosedRange<UInt64> { #expect(rig.claim(number) == [.start(flight(number))]) }
        #expect(rig.calls(freeSlots: 5) == [])
        rig.book.ended(flight(1), .result([9]), isAnswered: true)
        #expect(rig.book.deadline == nil)
    }

    @Test func `on return attempts without the engine are asserted, and are held or overtaken`() {
        var rig = Rig()
        _ = rig.pass(milliseconds: 5_000)
        for number in 1...3 as ClosedRange<UInt64> { _ = rig.claim(number) }
        #expect(rig.joined(members: 2) == [.mode(isCoordinated: true, members: 2)])
        let token = ClusterBook.uncoordinatedToken
        #expect(rig.calls() == [.want((1...3).map { Self.want($0, token: token) })])
        _ = rig.receive(
            .wanted([
                WantAnswer(key: Self.key(1), state: .held), WantAnswer(key: Self.key(2), state: .stale),
            ]))
        #expect(rig.phase(1) == .running(token))
        #expect(rig.phase(2) == .overtaken)
        #expect(rig.phase(3) == .uncoordinated)
        // The result of the other attempt does not end the claim, whose own attempt still runs.
        #expect(rig.receive(.result(Self.key(2), [])) == [])
        for number in 1...3 as ClosedRange<UInt64> { rig.book.ended(flight(number), .result([9]), isAnswered: true) }
        #expect(
            rig.calls().prefix(2) == [
                .unwant([Self.key(2)]), .done([completion(1, token: 1), completion(3, token: 1)]),
            ])
        #expect(rig.book.withdraw(flight(2)) == .nothing)
    }

    @Test func `a running attempt keeps its token over a loss, and a lost one runs for its own clients`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        _ = rig.receive(.left(.closed))
        #expect(rig.pass(milliseconds: 6_000) == [.mode(isCoordinated: false, members: 3)])
        _ = rig.joined()
        #expect(rig.calls() == [.want([Self.want(1, age: 6_000, token: FencingToken(50))])])
        _ = rig.receive(.wanted([WantAnswer(key: Self.key(1), state: .stale)]))
        #expect(rig.phase(1) == .overtaken)
        #expect(rig.book.withdraw(flight(1)) == .cancel(nil))
        #expect(rig.calls().first == .unwant([Self.key(1)]))
    }

    @Test func `an end while the engine is away needs no call, since the lease returns the flight`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        _ = rig.receive(.left(.closed))
        rig.book.ended(flight(1), .result([9]), isAnswered: true)
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
    }

    @Test func `events of an earlier membership have no effect`() {
        var rig = Rig()
        _ = rig.claim(1)
        #expect(rig.grant(1) == [])
        #expect(rig.receive(.result(Self.key(1), [])) == [])
        #expect(rig.receive(.wanted([WantAnswer(key: Self.key(1), state: .ended([]))])) == [])
        #expect(rig.phase(1) == .waiting)
    }

    @Test func `cool-downs and refusals pass through`() {
        var rig = Rig()
        _ = rig.joined()
        _ = rig.calls(freeSlots: 1)
        let refusal = EngineRefusal(origin: Self.origin, askedMilliseconds: 100)
        rig.book.refused(refusal)
        #expect(rig.calls() == [.cool(refusal)])
        let notice = CoolDownNotice(origin: Self.origin.key, remainingMilliseconds: 900, strikes: 1)
        #expect(rig.receive(.cooled(notice)) == [.coolDown(notice)])
        _ = rig.receive(.ended([CompletionAnswer(key: Self.key(1), token: FencingToken(1), isCurrent: false)]))
        #expect(rig.book.staleEnds == 1)
    }
}
