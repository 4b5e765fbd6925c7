import Testing

@testable import EarshotCore

/// Bodies that a node holds for others: time and memory.
@Suite struct HeldResultsTests {
    private static let start = MonotonicTime(nanoseconds: 0)

    private func body(_ number: UInt64) -> HeldBody {
        HeldBody(key: ClusterKey(high: 1, low: number), token: FencingToken(number + 1))
    }

    private func outcome(_ number: Int) -> Handle<Outcome> { Handle(slabIndex: number) }

    @Test func `a body is held for its time, and then released in the order of arrival`() {
        var held = HeldResults()
        #expect(held.deadline == nil)
        for number in 0..<3 {
            let now = Self.start.advanced(byMilliseconds: number * 1_000)
            #expect(held.hold(outcome(number), as: body(UInt64(number)), memoryBytes: 10, now: now) == [])
        }
        #expect(held.checkInvariants() == [])
        #expect(held.count == 3)
        #expect(held.memoryBytes == 30)
        #expect(held[body(1)] == outcome(1))
        #expect(held[HeldBody(key: body(1).key, token: FencingToken(99))] == nil)
        let end = Self.start.advanced(byMilliseconds: HeldResults.holdMilliseconds)
        #expect(held.deadline == end)
        #expect(held.expire(now: end.advanced(byMilliseconds: -1), most: 9) == [])
        #expect(held.expire(now: end, most: 9) == [outcome(0)])
        #expect(held[body(0)] == nil)
        // One pass is short.
        #expect(held.expire(now: end.advanced(byMilliseconds: 9_000), most: 1) == [outcome(1)])
        #expect(held.expire(now: end.advanced(byMilliseconds: 9_000), most: 1) == [outcome(2)])
        #expect(held.deadline == nil)
        #expect(held.memoryBytes == 0)
        #expect(held.evictOldest() == nil)
        #expect(held.checkInvariants() == [])
    }

    @Test func `a second outcome of one name is released at once`() {
        var held = HeldResults()
        _ = held.hold(outcome(1), as: body(1), memoryBytes: 1, now: Self.start)
        #expect(held.hold(outcome(2), as: body(1), memoryBytes: 1, now: Self.start) == [outcome(2)])
        #expect(held[body(1)] == outcome(1))
        #expect(held.checkInvariants() == [])
    }

    @Test func `above the limit of memory the oldest bodies are released`() {
        var held = HeldResults()
        let half = HeldResults.maximumMemoryBytes / 2
        #expect(held.hold(outcome(1), as: body(1), memoryBytes: half, now: Self.start) == [])
        #expect(held.hold(outcome(2), as: body(2), memoryBytes: half, now: Self.start) == [])
        #expect(held.hold(outcome(3), as: body(3), memoryBytes: 1, now: Self.start) == [outcome(1)])
        // One that is too large alone displaces all, and itself.
        let large = HeldResults.maximumMemoryBytes + 1
        #expect(
            held.hold(outcome(4), as: body(4), memoryBytes: large, now: Self.start)
                == [outcome(2), outcome(3), outcome(4)])
        #expect(held.count == 0)
        #expect(held.checkInvariants() == [])
    }

    @Test func `files have no limit of memory but one of their number`() {
        var held = HeldResults()
        for number in 0..<HeldResults.maximumBodies {
            _ = held.hold(outcome(number), as: body(UInt64(number)), memoryBytes: 0, now: Self.start)
        }
        #expect(held.count == HeldResults.maximumBodies)
        let last = HeldResults.maximumBodies
        #expect(held.hold(outcome(last), as: body(UInt64(last)), memoryBytes: 0, now: Self.start) == [outcome(0)])
        #expect(held.outcomes.count == HeldResults.maximumBodies)
    }
}
