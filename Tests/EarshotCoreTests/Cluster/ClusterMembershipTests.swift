import EarshotWire
import Testing

@testable import EarshotCore

/// Membership of the book, the mode without the engine, and the calls of a pass.
@Suite struct ClusterMembershipTests {
    private let one = BookRig.flight(1)

    // MARK: Questions

    @Test func `the engine is asked for flights only if some may wait`() {
        var rig = BookRig(isMember: false)
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 100) == [.takeFlights(slots: 64)])
        #expect(rig.calls(freeSlots: 100) == [])
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: 300))
        #expect(rig.calls(freeSlots: 100) == [])
        #expect(rig.book.deadline == rig.now.advanced(byMilliseconds: 300))
        _ = rig.wait(milliseconds: 300)
        #expect(rig.calls(freeSlots: 100) == [.takeFlights(slots: 64)])
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        _ = rig.receive(.workWaits)
        #expect(rig.calls() == [])
        #expect(rig.calls(freeSlots: 1) == [.takeFlights(slots: 1)])
        // All slots were filled, so more may wait.
        _ = rig.grant(5, record: [])
        #expect(rig.calls(freeSlots: 1) == [.takeFlights(slots: 1)])
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        // A wake-up may be lost.
        _ = rig.wait(milliseconds: 2_000)
        #expect(rig.calls(freeSlots: 1) == [.takeFlights(slots: 1)])
    }

    @Test func `a node without free slots wakes another for its wants`() {
        var rig = BookRig()
        rig.claim(1)
        #expect(rig.calls() == [.wantFlights([BookRig.want(1)]), .takeFlights(slots: 0)])
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        #expect(rig.calls(freeSlots: 1) == [.takeFlights(slots: 1)])
    }

    @Test func `withdrawals come first, then ends, refusals, wants and questions`() {
        var rig = BookRig()
        rig.running(1)
        rig.claim(2)
        rig.claim(3)
        rig.book.removeClaim(of: BookRig.flight(3))
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        let refusal = EngineRefusal(origin: BookRig.origin, requestedMilliseconds: 100)
        rig.book.reportOriginRefusal(refusal)
        _ = rig.receive(.flightsGranted([], opensAfterMilliseconds: nil))
        #expect(
            rig.calls(freeSlots: 1) == [
                .withdrawWants([BookRig.key(3)]), .reportCompletions([BookRig.end(1)]), .reportRefusal(refusal),
                .wantFlights([BookRig.want(2)]),
                .takeFlights(slots: 1),
            ])
    }

    @Test func `cool-downs pass through, and stale ends are counted`() {
        var rig = BookRig()
        let notice = CoolDownNotice(origin: BookRig.origin.key, remainingMilliseconds: 900, refusalsInRow: 1)
        #expect(rig.receive(.cooled(notice)) == [.coolDown(notice)])
        _ = rig.receive(
            .completionsAnswered([CompletionAnswer(key: BookRig.key(1), token: FencingToken(1), isCurrent: false)]))
        #expect(rig.book.staleCompletionCount == 1)
    }

    // MARK: Without the engine

    @Test func `after five seconds without the engine claims return to the queue, and limits are divided`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 10_000)
        rig.claim(1)
        _ = rig.calls()
        #expect(rig.book.localLimit(of: 6) == 6)
        _ = rig.receive(.left(.timedOut))
        #expect(rig.phase(1) == .waiting)
        #expect(rig.wait(milliseconds: 4_999) == [])
        // Further failures to join do not prolong it.
        _ = rig.receive(.left(.unreachable("refused")))
        #expect(rig.book.deadline == rig.now.advanced(byMilliseconds: 1))
        #expect(rig.wait(milliseconds: 1) == [.coordinationChanged(isCoordinated: false), .requeueFlight(one)])
        #expect(rig.phase(1) == nil)
        #expect(rig.book.localLimit(of: 6) == 2)
        #expect(rig.book.localLimit(of: 2) == 1)
        #expect(rig.calls(freeSlots: 5) == [])
        #expect(rig.book.deadline == nil)
        #expect(rig.wait(milliseconds: 60_000) == [])
    }

    @Test func `for a lease after an absence the engine gets no part of a limit of nodes that are not back`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.wait(milliseconds: 3_000)
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.wait(milliseconds: 5_000)
        _ = rig.joined(members: 1)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 2)
        #expect(rig.book.engineLimit(of: 1, now: rig.now) == 1)
        _ = rig.receive(.members(2))
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 4)
        rig.claim(2)
        #expect(
            rig.calls().contains { if case .wantFlights(let wants) = $0 { wants[0].origin.limit == 4 } else { false } })
        _ = rig.wait(milliseconds: 3_000)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 6)
    }

    @Test func `a node that was away for less than five seconds leaves out no part of a limit`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 10_000)
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.wait(milliseconds: 4_999)
        _ = rig.joined(members: 1)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 6)
    }

    @Test func `limits are divided by the latest number of members that lasted for a lease`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 3_000)
        // The engine flaps, and this node is the first that joins each time.
        for _ in 0..<3 {
            _ = rig.receive(.left(.connectionClosed))
            _ = rig.joined(members: 1)
            _ = rig.wait(milliseconds: 2_999)
        }
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.wait(milliseconds: 5_000)
        #expect(rig.book.localLimit(of: 6) == 2)
        _ = rig.joined(members: 1)
        _ = rig.wait(milliseconds: 3_000)
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.wait(milliseconds: 5_000)
        #expect(rig.book.localLimit(of: 6) == 6)
    }

    @Test func `limits are divided by the number of the settings at least`() {
        var count = MemberCount(configured: 3)
        #expect(count.limitDivisor == 3)
        count.memberCountReported(2, now: BookRig.start)
        count.membershipEnded(now: BookRig.start.advanced(byMilliseconds: 3_000))
        #expect(count.presentCount == 2)
        #expect(count.limitDivisor == 3)
        count.memberCountReported(5, now: BookRig.start.advanced(byMilliseconds: 4_000))
        count.memberCountReported(5, now: BookRig.start.advanced(byMilliseconds: 6_000))
        count.memberCountReported(4, now: BookRig.start.advanced(byMilliseconds: 7_000))
        #expect(count.limitDivisor == 5)
    }

    @Test func `memberships that end at once do not restart the timeout`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 10_000)
        _ = rig.receive(.left(.connectionClosed))
        for _ in 0..<4 {
            #expect(rig.wait(milliseconds: 1_000) == [])
            #expect(rig.joined() == [])
            _ = rig.receive(.left(.connectionClosed))
        }
        #expect(rig.wait(milliseconds: 1_000) == [.coordinationChanged(isCoordinated: false)])
        // One that lasts does.
        #expect(rig.joined() == [.coordinationChanged(isCoordinated: true)])
        #expect(rig.wait(milliseconds: 5_000) == [])
        _ = rig.receive(.left(.connectionClosed))
        #expect(rig.wait(milliseconds: 4_999) == [])
        #expect(rig.wait(milliseconds: 1) == [.coordinationChanged(isCoordinated: false)])
    }

    @Test func `the time of a short membership with progress is no absence`() {
        var rig = BookRig(isMember: false)
        _ = rig.wait(milliseconds: 1_000)
        for _ in 0..<2 {
            _ = rig.joined()
            #expect(rig.wait(milliseconds: 4_900) == [])
            rig.running(1)
            _ = rig.receive(.left(.connectionClosed))
            rig.book.endAttempt(of: BookRig.flight(1), result: [9], isAnswered: true, now: rig.now)
            #expect(rig.wait(milliseconds: 1_000) == [])
        }
        // Three seconds in all.
        #expect(rig.wait(milliseconds: 1_999) == [])
        #expect(rig.wait(milliseconds: 1) == [.coordinationChanged(isCoordinated: false)])
    }

    @Test func `on return attempts without the engine are asserted, and are held or overtaken`() {
        var rig = BookRig(isMember: false)
        _ = rig.wait(milliseconds: 5_000)
        for number in 1...3 as ClosedRange<UInt64> {
            rig.book.addRunningAttempt(
                BookRig.flight(number), BookRig.want(number), token: FencingToken(70 + number), now: rig.now)
        }
        #expect(rig.joined(members: 2) == [.coordinationChanged(isCoordinated: true)])
        #expect(rig.statements() == [.wantFlights((1...3).map { BookRig.want($0, token: 70 + $0) })])
        _ = rig.receive(
            .wantsAnswered([
                WantAnswer(key: BookRig.key(1), state: .held), WantAnswer(key: BookRig.key(2), state: .stale),
            ]))
        #expect(rig.phase(1) == .running(FencingToken(71)))
        #expect(rig.phase(2) == .overtaken)
        #expect(rig.phase(3) == .uncoordinated(FencingToken(73)))
        for number in 1...3 as ClosedRange<UInt64> {
            rig.book.endAttempt(of: BookRig.flight(number), result: [9], isAnswered: true, now: rig.now)
        }
        #expect(
            rig.statements() == [
                .withdrawWants([BookRig.key(2)]),
                .reportCompletions([BookRig.end(1, token: 71), BookRig.end(3, token: 73)]),
            ])
    }

    @Test func `a running attempt keeps its token over a loss`() {
        var rig = BookRig()
        rig.running(1)
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.wait(milliseconds: 6_000)
        _ = rig.joined()
        #expect(rig.statements() == [.wantFlights([BookRig.want(1, age: 6_000, token: 50)])])
        #expect(rig.answer(1, .held) == [])
        #expect(rig.phase(1) == .running(FencingToken(50)))
    }

    @Test func `a node that joins again retires its earlier ID once, after its assertions`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        _ = rig.receive(.left(.connectionClosed))
        _ = rig.receive(.joined(NodeID(8), members: 4))
        let calls = rig.statements()
        #expect(calls.last == .retireMembership(NodeID(7)))
        #expect(calls.count == 2)
        #expect(!rig.statements().contains(.retireMembership(NodeID(7))))
    }

    @Test func `a restarted node retires the ID of its earlier process once, before its assertions`() {
        var book = ClusterBook(predecessor: NodeID(3), now: BookRig.start)
        book.addRunningAttempt(one, BookRig.want(1), token: FencingToken(70), now: BookRig.start)
        _ = book.engineEventReceived(.joined(NodeID(7), members: 1), now: BookRig.start)
        let calls = book.takeEngineCalls(freeSlots: 1, now: BookRig.start)
        #expect(calls.prefix(2) == [.retireMembership(NodeID(3)), .wantFlights([BookRig.want(1, token: 70)])])
        #expect(!book.takeEngineCalls(freeSlots: 1, now: BookRig.start).contains(.retireMembership(NodeID(3))))
    }

    @Test func `a restarted node ends the membership of its earlier process when its workers have reported`() {
        var node = ClusterRig(isMember: false, predecessor: NodeID(3))
        node.pass {
            $0.core.recoverFromBrokerDeath(awaiting: [1], until: $0.now.advanced(byMilliseconds: 1_000), now: $0.now)
        }
        node.engine(.joined(NodeID(7), members: 2))
        #expect(node.calls == [])
        node.pass { _ = $0.worker() }
        #expect(node.calls.first == .retireMembership(NodeID(3)))
    }

    @Test func `a result without the engine is reported to the next one, and a cancelled attempt needs no call`() {
        var rig = BookRig()
        rig.running(1)
        rig.running(2)
        rig.running(3, .pinned)
        rig.book.attemptCancelled(BookRig.flight(2), BookRig.attempt(2))
        _ = rig.calls()
        _ = rig.receive(.left(.connectionClosed))
        rig.book.endAttempt(of: one, result: [9], isAnswered: true, now: rig.now)
        rig.book.endAttempt(of: BookRig.flight(3), result: [], isAnswered: true, now: rig.now)
        rig.book.attemptEnded(BookRig.attempt(2))
        _ = rig.wait(milliseconds: 700)
        _ = rig.joined()
        let kept = EngineCompletion.Outcome.lateResult([9], ageMilliseconds: 700)
        #expect(
            rig.calls(freeSlots: 1) == [
                .reportCompletions([BookRig.end(1, kept, isAnswered: false)]), .takeFlights(slots: 1),
            ])
    }

    @Test func `results without the engine are forgotten when they are too many or too old`() {
        var results = UnreportedResults()
        for number in 0...UInt64(UnreportedResults.maximumResults) {
            results.addResult([1], of: BookRig.key(number), FencingToken(5), now: BookRig.start)
        }
        var other = results
        let reports = results.takeFreshCompletions(now: BookRig.start)
        #expect(reports.count == UnreportedResults.maximumResults)
        #expect(reports.first?.key == BookRig.key(1))
        #expect(results.takeFreshCompletions(now: BookRig.start) == [])
        #expect(
            other.takeFreshCompletions(
                now: BookRig.start.advanced(byMilliseconds: EngineLimits.resultRetentionMilliseconds)) == [])
    }

    @Test func `events of an earlier membership have no effect`() {
        var rig = BookRig(isMember: false)
        rig.claim(1)
        #expect(rig.grant(1) == [])
        #expect(rig.receive(.resultReceived(BookRig.key(1), [])) == [])
        #expect(rig.answer(1, .ended([])) == [])
        #expect(rig.phase(1) == .waiting)
    }

    @Test func `a claim of an earlier membership is asserted in the next one`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        _ = rig.receive(.left(.connectionClosed))
        #expect(rig.calls(freeSlots: 1) == [])
        _ = rig.wait(milliseconds: 1_000)
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 1) == [.wantFlights([BookRig.want(1, age: 1_000)]), .takeFlights(slots: 1)])
    }
}
