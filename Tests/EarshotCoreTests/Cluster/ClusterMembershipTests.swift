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
        #expect(rig.calls(freeSlots: 100) == [.take(slots: 64)])
        #expect(rig.calls(freeSlots: 100) == [])
        _ = rig.receive(.granted([], opensAfterMilliseconds: 300))
        #expect(rig.calls(freeSlots: 100) == [])
        #expect(rig.book.deadline == rig.now.advanced(byMilliseconds: 300))
        _ = rig.wait(milliseconds: 300)
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
        _ = rig.wait(milliseconds: 2_000)
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
    }

    @Test func `a node without free slots wakes another for its wants`() {
        var rig = BookRig()
        rig.claim(1)
        #expect(rig.calls() == [.want([BookRig.want(1)]), .take(slots: 0)])
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        #expect(rig.calls(freeSlots: 1) == [.take(slots: 1)])
    }

    @Test func `withdrawals come first, then ends, refusals, wants and questions`() {
        var rig = BookRig()
        rig.running(1)
        rig.claim(2)
        rig.claim(3)
        rig.book.drop(BookRig.flight(3))
        rig.book.ended(one, [9], isAnswered: true, now: rig.now)
        let refusal = EngineRefusal(origin: BookRig.origin, requestedMilliseconds: 100)
        rig.book.originRefused(refusal)
        _ = rig.receive(.granted([], opensAfterMilliseconds: nil))
        #expect(
            rig.calls(freeSlots: 1) == [
                .unwant([BookRig.key(3)]), .done([BookRig.end(1)]), .cool(refusal), .want([BookRig.want(2)]),
                .take(slots: 1),
            ])
    }

    @Test func `cool-downs pass through, and stale ends are counted`() {
        var rig = BookRig()
        let notice = CoolDownNotice(origin: BookRig.origin.key, remainingMilliseconds: 900, strikes: 1)
        #expect(rig.receive(.cooled(notice)) == [.coolDown(notice)])
        _ = rig.receive(.ended([CompletionAnswer(key: BookRig.key(1), token: FencingToken(1), isCurrent: false)]))
        #expect(rig.book.staleEnds == 1)
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
        #expect(rig.wait(milliseconds: 1) == [.mode(isCoordinated: false), .requeue(one)])
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
        _ = rig.receive(.left(.closed))
        _ = rig.wait(milliseconds: 5_000)
        _ = rig.joined(members: 1)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 2)
        #expect(rig.book.engineLimit(of: 1, now: rig.now) == 1)
        _ = rig.receive(.members(2))
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 4)
        rig.claim(2)
        #expect(rig.calls().contains { if case .want(let wants) = $0 { wants[0].origin.limit == 4 } else { false } })
        _ = rig.wait(milliseconds: 3_000)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 6)
    }

    @Test func `a node that was away for less than five seconds leaves out no part of a limit`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 10_000)
        _ = rig.receive(.left(.closed))
        _ = rig.wait(milliseconds: 4_999)
        _ = rig.joined(members: 1)
        #expect(rig.book.engineLimit(of: 6, now: rig.now) == 6)
    }

    @Test func `limits are divided by the latest number of members that lasted for a lease`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 3_000)
        // The engine flaps, and this node is the first that joins each time.
        for _ in 0..<3 {
            _ = rig.receive(.left(.closed))
            _ = rig.joined(members: 1)
            _ = rig.wait(milliseconds: 2_999)
        }
        _ = rig.receive(.left(.closed))
        _ = rig.wait(milliseconds: 5_000)
        #expect(rig.book.localLimit(of: 6) == 2)
        _ = rig.joined(members: 1)
        _ = rig.wait(milliseconds: 3_000)
        _ = rig.receive(.left(.closed))
        _ = rig.wait(milliseconds: 5_000)
        #expect(rig.book.localLimit(of: 6) == 6)
    }

    @Test func `limits are divided by the number of the settings at least`() {
        var count = MemberCount(configured: 3)
        #expect(count.divisor == 3)
        count.reported(2, now: BookRig.start)
        count.membershipEnded(now: BookRig.start.advanced(byMilliseconds: 3_000))
        #expect(count.presentCount == 2)
        #expect(count.divisor == 3)
        count.reported(5, now: BookRig.start.advanced(byMilliseconds: 4_000))
        count.reported(5, now: BookRig.start.advanced(byMilliseconds: 6_000))
        count.reported(4, now: BookRig.start.advanced(byMilliseconds: 7_000))
        #expect(count.divisor == 5)
    }

    @Test func `memberships that end at once do not restart the patience`() {
        var rig = BookRig()
        _ = rig.wait(milliseconds: 10_000)
        _ = rig.receive(.left(.closed))
        for _ in 0..<4 {
            #expect(rig.wait(milliseconds: 1_000) == [])
            #expect(rig.joined() == [])
            _ = rig.receive(.left(.closed))
        }
        #expect(rig.wait(milliseconds: 1_000) == [.mode(isCoordinated: false)])
        // One that lasts does.
        #expect(rig.joined() == [.mode(isCoordinated: true)])
        #expect(rig.wait(milliseconds: 5_000) == [])
        _ = rig.receive(.left(.closed))
        #expect(rig.wait(milliseconds: 4_999) == [])
        #expect(rig.wait(milliseconds: 1) == [.mode(isCoordinated: false)])
    }

    @Test func `the time of a short membership with progress is no absence`() {
        var rig = BookRig(isMember: false)
        _ = rig.wait(milliseconds: 1_000)
        for _ in 0..<2 {
            _ = rig.joined()
            #expect(rig.wait(milliseconds: 4_900) == [])
            rig.running(1)
            _ = rig.receive(.left(.closed))
            rig.book.ended(BookRig.flight(1), [9], isAnswered: true, now: rig.now)
            #expect(rig.wait(milliseconds: 1_000) == [])
        }
        // Three seconds in all.
        #expect(rig.wait(milliseconds: 1_999) == [])
        #expect(rig.wait(milliseconds: 1) == [.mode(isCoordinated: false)])
    }

    @Test func `on return attempts without the engine are asserted, and are held or overtaken`() {
        var rig = BookRig(isMember: false)
        _ = rig.wait(milliseconds: 5_000)
        for number in 1...3 as ClosedRange<UInt64> {
            rig.book.addRunningAttempt(
                BookRig.flight(number), BookRig.want(number), token: FencingToken(70 + number), now: rig.now)
        }
        #expect(rig.joined(members: 2) == [.mode(isCoordinated: true)])
        #expect(rig.statements() == [.want((1...3).map { BookRig.want($0, token: 70 + $0) })])
        _ = rig.receive(
            .wanted([
                WantAnswer(key: BookRig.key(1), state: .held), WantAnswer(key: BookRig.key(2), state: .stale),
            ]))
        #expect(rig.phase(1) == .running(FencingToken(71)))
        #expect(rig.phase(2) == .overtaken)
        #expect(rig.phase(3) == .uncoordinated(FencingToken(73)))
        for number in 1...3 as ClosedRange<UInt64> {
            rig.book.ended(BookRig.flight(number), [9], isAnswered: true, now: rig.now)
        }
        #expect(
            rig.statements() == [
                .unwant([BookRig.key(2)]), .done([BookRig.end(1, token: 71), BookRig.end(3, token: 73)]),
            ])
    }

    @Test func `a running attempt keeps its token over a loss`() {
        var rig = BookRig()
        rig.running(1)
        _ = rig.receive(.left(.closed))
        _ = rig.wait(milliseconds: 6_000)
        _ = rig.joined()
        #expect(rig.statements() == [.want([BookRig.want(1, age: 6_000, token: 50)])])
        #expect(rig.answer(1, .held) == [])
        #expect(rig.phase(1) == .running(FencingToken(50)))
    }

    @Test func `a node that joins again retires its earlier ID once, after its assertions`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        _ = rig.grant(1)
        _ = rig.receive(.left(.closed))
        _ = rig.receive(.joined(NodeID(8), members: 4))
        let calls = rig.statements()
        #expect(calls.last == .retire(NodeID(7)))
        #expect(calls.count == 2)
        #expect(!rig.statements().contains(.retire(NodeID(7))))
    }

    @Test func `a restarted node retires the ID of its earlier process once, before its assertions`() {
        var book = ClusterBook(predecessor: NodeID(3), now: BookRig.start)
        book.addRunningAttempt(one, BookRig.want(1), token: FencingToken(70), now: BookRig.start)
        _ = book.received(.joined(NodeID(7), members: 1), now: BookRig.start)
        let calls = book.takeCalls(freeSlots: 1, now: BookRig.start)
        #expect(calls.prefix(2) == [.retire(NodeID(3)), .want([BookRig.want(1, token: 70)])])
        #expect(!book.takeCalls(freeSlots: 1, now: BookRig.start).contains(.retire(NodeID(3))))
    }

    @Test func `a restarted node ends the membership of its earlier process when its workers have reported`() {
        var node = ClusterRig(isMember: false, predecessor: NodeID(3))
        node.pass { $0.core.brokerDied(awaiting: [1], until: $0.now.advanced(byMilliseconds: 1_000), now: $0.now) }
        node.engine(.joined(NodeID(7), members: 2))
        #expect(node.calls == [])
        node.pass { _ = $0.worker() }
        #expect(node.calls.first == .retire(NodeID(3)))
    }

    @Test func `a result without the engine is reported to the next one, and a cancelled attempt needs no call`() {
        var rig = BookRig()
        rig.running(1)
        rig.running(2)
        rig.running(3, .pinned)
        rig.book.cancelled(BookRig.flight(2), BookRig.attempt(2))
        _ = rig.calls()
        _ = rig.receive(.left(.closed))
        rig.book.ended(one, [9], isAnswered: true, now: rig.now)
        rig.book.ended(BookRig.flight(3), [], isAnswered: true, now: rig.now)
        rig.book.attemptEnded(BookRig.attempt(2))
        _ = rig.wait(milliseconds: 700)
        _ = rig.joined()
        let kept = EngineCompletion.Outcome.kept([9], ageMilliseconds: 700)
        #expect(rig.calls(freeSlots: 1) == [.done([BookRig.end(1, kept, isAnswered: false)]), .take(slots: 1)])
    }

    @Test func `results without the engine are forgotten when they are too many or too old`() {
        var results = UnreportedResults()
        for number in 0...UInt64(UnreportedResults.mostResults) {
            results.add([1], of: BookRig.key(number), FencingToken(5), now: BookRig.start)
        }
        var other = results
        let reports = results.take(now: BookRig.start)
        #expect(reports.count == UnreportedResults.mostResults)
        #expect(reports.first?.key == BookRig.key(1))
        #expect(results.take(now: BookRig.start) == [])
        #expect(other.take(now: BookRig.start.advanced(byMilliseconds: EngineLimits.resultMilliseconds)) == [])
    }

    @Test func `events of an earlier membership have no effect`() {
        var rig = BookRig(isMember: false)
        rig.claim(1)
        #expect(rig.grant(1) == [])
        #expect(rig.receive(.result(BookRig.key(1), [])) == [])
        #expect(rig.answer(1, .ended([])) == [])
        #expect(rig.phase(1) == .waiting)
    }

    @Test func `a claim of an earlier membership is asserted in the next one`() {
        var rig = BookRig()
        rig.claim(1)
        _ = rig.calls()
        _ = rig.receive(.left(.closed))
        #expect(rig.calls(freeSlots: 1) == [])
        _ = rig.wait(milliseconds: 1_000)
        _ = rig.joined()
        #expect(rig.calls(freeSlots: 1) == [.want([BookRig.want(1, age: 1_000)]), .take(slots: 1)])
    }
}
