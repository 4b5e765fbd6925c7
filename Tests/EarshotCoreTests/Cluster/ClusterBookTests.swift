import EarshotWire
import Testing

@testable import EarshotCore

/// Claims, withdrawals and hosted attempts of the book, without a core and an engine.
@Suite struct ClusterBookTests {
    private let one = BookRig.flight(1)

    @Test func `each transition is the diagram's`() {
        let phases: [ClusterBook.Phase?] = [
            nil, .waiting, .wanted, .running(FencingToken(2)), .uncoordinated(FencingToken(3)), .overtaken,
        ]
        let legal = phases.map { from in phases.map { ClusterBook.isLegal(from: from, to: $0) ? "x" : "." }.joined() }
        // Columns and rows: absent, waiting, wanted, running, uncoordinated, overtaken.
        #expect(legal == [".x.xx.", "x.x...", "xx.x..", "x..x.x", "x..x.x", "x..x.."])
    }

    @Test func `a claim is wanted, granted, run and ended`() {
        var rig = BookRig()
        rig.claim(1)
        #expect(rig.phase(1) == .wanted)
        #expect(rig.calls(freeSlots: 2) == [.wantFlights([BookRig.want(1)]), .takeFlights(slots: 2)])
        #expect(rig.answer(1, .queued) == [])
        #expect(rig.grant(1) == [.startFlight(one)])
        #expect(rig.phase(1) == .running(FencingToken(50)))
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        #expect(rig.phase(1) == nil)
        #expect(rig.statements() == [.reportCompletions([BookRig.end(1)])])
        #expect(rig.book.openClaimCount == 0)
    }

    @Test func `the window counts the slots of all members, and a start makes room`() {
        var rig = BookRig(slots: 2)
        for number in 1...24 as ClosedRange<UInt64> {
            #expect(rig.book.hasRoomForClaim)
            rig.claim(number)
        }
        #expect(!rig.book.hasRoomForClaim)
        _ = rig.calls(freeSlots: 1)
        _ = rig.grant(3)
        #expect(rig.book.hasRoomForClaim)
    }

    @Test func `a full window doubles while the engine has too few claims to start, and shrinks when slots are filled`()
    {
        var rig = BookRig(slots: 2)
        for number in 1...24 as ClosedRange<UInt64> { rig.claim(number) }
        _ = rig.calls(freeSlots: 2)
        _ = rig.grant(3)
        // One claim was started and there is room for another, so more are no use yet.
        rig.claim(25)
        #expect(!rig.book.hasRoomForClaim)
        _ = rig.wait(milliseconds: 2_000)
        _ = rig.calls(freeSlots: 1)
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        for number in 26...49 as ClosedRange<UInt64> {
            #expect(rig.book.hasRoomForClaim)
            rig.claim(number)
        }
        #expect(!rig.book.hasRoomForClaim)
        _ = rig.calls(freeSlots: 1)
        _ = rig.grant(4)
        #expect(!rig.book.hasRoomForClaim)
    }

    @Test(arguments: [true, false])
    func `a result of another node ends a claim, whether it is pushed or an answer`(isPushed: Bool) {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        let event =
            isPushed
            ? EngineEvent.resultReceived(BookRig.key(1), [5])
            : .wantsAnswered([.init(key: BookRig.key(1), state: .ended([5]))])
        #expect(rig.receive(event) == [.resultReceived(one, [5])])
        #expect(rig.receive(event) == [])
        #expect(rig.phase(1) == nil)
    }

    @Test func `an answer concerns the claim that asked, not a later one of its key`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        #expect(rig.receive(.resultReceived(BookRig.key(1), [5])) == [.resultReceived(one, [5])])
        rig.claim(2, key: 1)
        _ = rig.calls()
        #expect(rig.answer(1, .ended([5])) == [])
        #expect(rig.phase(2) == .wanted)
        #expect(rig.answer(1, .ended([6])) == [.resultReceived(BookRig.flight(2), [6])])
    }

    @Test func `wants are asserted every minute with their age, until they end`() {
        var rig = BookRig()
        rig.claim(1)
        #expect(rig.statements() == [.wantFlights([BookRig.want(1)])])
        _ = rig.wait(milliseconds: 5_000)
        rig.claim(2)
        #expect(rig.statements() == [.wantFlights([BookRig.want(2)])])
        _ = rig.wait(milliseconds: 54_999)
        #expect(rig.statements() == [])
        _ = rig.wait(milliseconds: 1)
        #expect(rig.statements() == [.wantFlights([BookRig.want(1, age: 60_000)])])
        #expect(rig.statements() == [])
        _ = rig.receive(.resultReceived(BookRig.key(1), []))
        rig.awaitAssertions()
        #expect(rig.statements() == [.wantFlights([BookRig.want(2, age: 115_000)])])
    }

    @Test func `after a loss of messages everything is asserted at once`() {
        var rig = BookRig()
        rig.claim(1)
        rig.running(2)
        rig.running(3, .pinned)
        _ = rig.wait(milliseconds: 100)
        _ = rig.calls(freeSlots: 1)
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        #expect(rig.calls(freeSlots: 1) == [])
        #expect(rig.receive(.messagesLost) == [])
        #expect(
            rig.calls(freeSlots: 1) == [
                .wantFlights([
                    BookRig.want(1, age: 100), BookRig.want(2, age: 100, token: 50),
                    BookRig.want(3, .pinned, age: 100, token: 50),
                ]), .takeFlights(slots: 1),
            ])
        #expect(rig.statements() == [])
    }

    @Test func `a claim whose flight this node has just ended for others is asserted at once`() {
        var rig = BookRig()
        rig.running(1)
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .continueHosting)
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        rig.claim(2, key: 1)
        _ = rig.calls()
        #expect(rig.statements() == [])
        _ = rig.receive(
            .completionsAnswered([CompletionAnswer(key: BookRig.key(1), token: FencingToken(50), isCurrent: true)]))
        #expect(rig.statements().count == 1)
    }

    @Test func `a claim, an end or a withdrawal leaves at once, and not with the next heartbeat`() {
        var rig = BookRig()
        func isDue() -> Bool { rig.book.deadline.map { $0 <= rig.now } ?? false }
        _ = rig.calls()
        #expect(!isDue())
        rig.claim(1)
        #expect(isDue())
        _ = rig.calls()
        #expect(!isDue())
        rig.book.removeClaim(of: one)
        #expect(isDue())
        _ = rig.calls()
        rig.running(2)
        #expect(!isDue())
        rig.book.endAttempt(of: BookRig.flight(2), result: [9], isAnswered: true, now: rig.now)
        #expect(isDue())
    }

    @Test func `a running attempt of a shared flight is asserted with its token, one of this node alone is not`() {
        var rig = BookRig()
        rig.running(1)
        rig.running(2, .pinned)
        // The assertion that was due before the start.
        rig.awaitAssertions()
        _ = rig.calls()
        rig.awaitAssertions()
        #expect(rig.statements() == [.wantFlights([BookRig.want(1, age: 120_000, token: 50)])])
    }

    @Test func `a promoted claim is asserted at once`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        rig.book.promote(one, to: .high)
        rig.book.promote(one, to: .low)
        var want = BookRig.want(1)
        want.priority = .high
        #expect(rig.statements() == [.wantFlights([want])])
    }

    // MARK: Withdrawals

    @Test func `a claim that is dropped is withdrawn, and its late grant is released and not wanted`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .endAttempt)
        rig.book.removeClaim(of: one)
        rig.book.removeClaim(of: one)
        #expect(rig.statements() == [.withdrawWants([BookRig.key(1)])])
        #expect(rig.grant(1) == [])
        #expect(
            rig.statements() == [
                .withdrawWants([BookRig.key(1)]), .reportCompletions([BookRig.end(1, .released, isAnswered: false)]),
            ])
    }

    @Test func `a claim that was never sent needs no call`() {
        var rig = BookRig(isMember: false)
        rig.claim(1)
        rig.book.removeClaim(of: one)
        _ = rig.joined()
        #expect(rig.statements() == [])
    }

    @Test func `a dropped attempt is withdrawn and then released`() {
        var rig = BookRig()
        rig.running(1)
        rig.book.removeClaim(of: one)
        #expect(
            rig.calls().prefix(2) == [
                .withdrawWants([BookRig.key(1)]), .reportCompletions([BookRig.end(1, .released, isAnswered: false)]),
            ])
    }

    @Test func `a withdrawn attempt goes on for other nodes until the engine reports that none wants it`() {
        var rig = BookRig()
        rig.running(1)
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .continueHosting)
        #expect(rig.statements() == [.withdrawWants([BookRig.key(1)])])
        _ = rig.wait(milliseconds: 2_000)
        #expect(rig.statements() == [.wantFlights([BookRig.want(1, age: 2_000, token: 50, isHosted: true)])])
        #expect(rig.receive(.attemptAborted(BookRig.key(1), FencingToken(49))) == [])
        #expect(rig.receive(.attemptAborted(BookRig.key(1), FencingToken(50))) == [.abortAttempt(one)])
        #expect(rig.receive(.attemptAborted(BookRig.key(1), FencingToken(50))) == [])
        // It counts until its worker has confirmed the end. A new flight of the key does not inherit the cancellation.
        rig.book.attemptCancelled(one, BookRig.attempt(1))
        #expect(rig.statements() == [])
        rig.claim(2, key: 1)
        #expect(rig.statements().count == 1)
        rig.book.attemptEnded(BookRig.attempt(2))
        #expect(rig.statements() == [])
        rig.book.attemptEnded(BookRig.attempt(1))
        rig.book.attemptEnded(BookRig.attempt(1))
        #expect(rig.statements() == [.reportCompletions([BookRig.end(1, .released, isAnswered: false)])])
        #expect(rig.grant(1, token: 51) == [.startFlight(BookRig.flight(2))])
    }

    @Test(arguments: [EngineWant.Lane.pinned, .credentialed])
    func `an attempt of this node alone is cancelled at once`(lane: EngineWant.Lane) {
        var rig = BookRig()
        rig.running(1, lane)
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .endAttempt)
        rig.book.attemptCancelled(one, BookRig.attempt(1))
        #expect(rig.statements() == [.withdrawWants([BookRig.key(1)])])
        rig.book.attemptEnded(BookRig.attempt(1))
        #expect(rig.statements() == [.reportCompletions([BookRig.end(1, .released, isAnswered: false)])])
    }

    // MARK: Hosted attempts

    @Test func `a grant for other nodes is hosted, asserted, and its result is delivered`() {
        var rig = BookRig()
        #expect(rig.grant(5, record: [3]) == [.hostAttempt(BookRig.key(5), FencingToken(50), record: [3], .normal)])
        let five = BookRig.flight(5)
        rig.book.addHostedClaim(five, BookRig.want(5), token: FencingToken(50), maximumBodyBytes: 10, now: rig.now)
        #expect(rig.book.claims[five]?.maximumHostedBytes == 10)
        _ = rig.wait(milliseconds: 2_000)
        #expect(rig.statements() == [.wantFlights([BookRig.want(5, age: 2_000, token: 50, isHosted: true)])])
        rig.book.endAttempt(of: five, result: [9], isAnswered: true, now: rig.now)
        rig.book.endAttempt(of: five, result: [9], isAnswered: true, now: rig.now)
        #expect(rig.statements() == [.reportCompletions([BookRig.end(5)])])
    }

    @Test func `a grant that cannot be used is released, and a claim of its key stays`() {
        var rig = BookRig()
        rig.book.releaseGrant(BookRig.key(5), FencingToken(50))
        #expect(
            rig.statements() == [
                .withdrawWants([BookRig.key(5)]), .reportCompletions([BookRig.end(5, .released, isAnswered: false)]),
            ])
        rig.claim(1)
        _ = rig.calls()
        rig.book.releaseGrant(BookRig.key(1), FencingToken(50))
        #expect(rig.statements() == [.reportCompletions([BookRig.end(1, .released, isAnswered: false)])])
        #expect(rig.phase(1) == .wanted)
    }

    @Test func `a grant whose abort arrived before it is released`() {
        var rig = BookRig()
        rig.claim(1)
        #expect(rig.calls(freeSlots: 2).contains(.takeFlights(slots: 2)))
        #expect(rig.receive(.attemptAborted(BookRig.key(5), FencingToken(50))) == [])
        #expect(rig.grant(5, record: [3]) == [])
        #expect(rig.statements().contains(.reportCompletions([BookRig.end(5, .released, isAnswered: false)])))
        // It concerns that attempt alone.
        #expect(rig.grant(5, record: [3]) == [.hostAttempt(BookRig.key(5), FencingToken(50), record: [3], .normal)])
    }

    @Test func `a claim whose grant has a record serves other nodes as well`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        #expect(rig.grant(1, record: [3]) == [.startFlight(one)])
        #expect(rig.book.claims[one]?.isHosted == true)
        #expect(rig.grant(1, token: 51, record: [3]) == [.flightHosted(one)])
        #expect(rig.phase(1) == .running(FencingToken(51)))
    }

    // MARK: Overtaken attempts

    @Test func `an attempt that has lost its flight runs for its own clients, and reports no result`() {
        var rig = BookRig()
        rig.running(1)
        rig.awaitAssertions()
        _ = rig.calls()
        #expect(rig.answer(1, .stale) == [])
        #expect(rig.phase(1) == .overtaken)
        // The result of the other attempt does not end it.
        #expect(rig.receive(.resultReceived(BookRig.key(1), [5])) == [])
        rig.awaitAssertions()
        #expect(rig.statements() == [])
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .endAttempt)
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        #expect(rig.statements() == [.withdrawWants([BookRig.key(1)])])
    }

    @Test func `a hosted attempt that has lost its flight ends`() {
        var rig = BookRig()
        rig.running(1)
        #expect(rig.book.withdrawFlight(one, now: rig.now) == .continueHosting)
        rig.awaitAssertions()
        _ = rig.calls()
        #expect(rig.answer(1, .stale) == [.abortAttempt(one)])
        rig.book.attemptCancelled(one, BookRig.attempt(1))
        rig.book.attemptEnded(BookRig.attempt(1))
        #expect(rig.statements() == [])
    }

    @Test func `an overtaken attempt that gets its flight again serves only its own requests`() {
        var rig = BookRig()
        rig.running(1)
        rig.awaitAssertions()
        _ = rig.calls()
        _ = rig.answer(1, .stale)
        #expect(rig.grant(1, token: 51) == [])
        #expect(rig.book.claims[one]?.isHosted == false)
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        #expect(rig.statements() == [.reportCompletions([BookRig.end(1, token: 51)])])
    }

    @Test func `an answer about an earlier attempt does not concern the present one`() {
        var rig = BookRig()
        rig.running(1)
        rig.awaitAssertions()
        #expect(rig.statements().count == 1)
        _ = rig.grant(1, token: 51)
        #expect(rig.answer(1, .stale) == [])
        #expect(rig.phase(1) == .running(FencingToken(51)))
    }
}
