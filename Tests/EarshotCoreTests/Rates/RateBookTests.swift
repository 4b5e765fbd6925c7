import EarshotWire
import Testing

@testable import EarshotCore

/// Shares of attempts in the rate limits of several groups.
struct RateBookTests {
    private typealias Limit = RateShares.GroupLimit
    private let worker = WorkerID(rawValue: 1)
    private let bus = Limit(group: .allAttempts, bytesPerSecond: 1_000)

    private func attempt(_ number: UInt64) throws -> AttemptID {
        try #require(AttemptID("0123456789abcdef.\(number).1"))
    }

    private func shares(_ members: [([Limit], Int?)]) -> [Int] {
        RateShares.maxMinShares(of: members.map { (limits: $0.0, demand: $0.1) })
    }

    @Test func `members of one limit share it equally`() {
        #expect(shares([([bus], nil)]) == [1_000])
        #expect(shares([([bus], nil), ([bus], nil), ([bus], nil)]) == [333, 333, 333])
        #expect(shares([]) == [])
    }

    @Test func `a share has its own limit, and others get the rest`() {
        let slow = Limit(group: .attemptsAtOrigin(1), bytesPerSecond: 100)
        let own = Limit(group: .attemptsForHandler(1), bytesPerSecond: 300)
        #expect(shares([([bus, slow], nil), ([bus], nil)]) == [100, 900])
        #expect(
            shares([([bus, slow], nil), ([bus, slow], nil), ([bus, own], nil), ([bus], nil)]) == [50, 50, 300, 600])
        #expect(shares([([slow], nil), ([own], nil)]) == [100, 300], "independent limits")
    }

    @Test func `a slow member leaves its share to the others`() {
        #expect(shares([([bus], 100), ([bus], nil), ([bus], nil)]) == [100, 450, 450])
        #expect(shares([([bus], 100), ([bus], 200), ([bus], nil)]) == [100, 200, 700])
        #expect(shares([([bus], 600), ([bus], 900)]) == [500, 500])
    }

    @Test func `slow members keep what no other member can use`() {
        let own = Limit(group: .attemptsForHandler(1), bytesPerSecond: 300)
        #expect(shares([([bus], 0)]) == [1_000])
        #expect(shares([([bus], 400), ([bus], 500)]) == [450, 550])
        #expect(shares([([bus], 100), ([bus, own], nil)]) == [700, 300])
    }

    @Test func `a member always has a share`() {
        #expect(shares([([bus], 0), ([bus], nil)]) == [1, 1_000])
        #expect(
            shares(Array(repeating: ([Limit(group: .allAttempts, bytesPerSecond: 1)], nil), count: 3)) == [1, 1, 1])
    }

    @Test func `the larger of two limits of a handler counts`() {
        let (low, high) = (
            Limit(group: .attemptsForHandler(1), bytesPerSecond: 10),
            Limit(group: .attemptsForHandler(1), bytesPerSecond: 100)
        )
        #expect(shares([([low], nil), ([high], nil)]) == [50, 50])
    }

    @Test(arguments: 1...200)
    func `shares exceed no limit and none could be larger`(seed: UInt64) {
        var random = SplitMix64Generator(seed: seed)
        func number(_ bound: UInt64) -> Int { Int(random.next() % bound) }
        let members = (0..<1 + number(20)).map { _ -> ([Limit], Int?) in
            let groups: [Limit] = [
                bus, Limit(group: .attemptsAtOrigin(Handle(slabIndex: number(3))), bytesPerSecond: 400),
                Limit(group: .attemptsForHandler(Handle(slabIndex: number(3))), bytesPerSecond: 350),
            ]
            return (
                Array(groups.shuffled(using: &random).prefix(1 + number(3))), number(2) == 0 ? number(300) + 1 : nil
            )
        }
        let shares = shares(members)
        var used: [RateShares.LimitGroup: Int] = [:]
        for (member, share) in zip(members, shares) {
            for limit in member.0 { used[limit.group, default: 0] += share }
        }
        // Each of the two divisions rounds down.
        let slack = 2 * (members.count + 1)
        for (member, share) in zip(members, shares) {
            for limit in member.0 { #expect((used[limit.group] ?? 0) <= limit.bytesPerSecond + slack) }
            let isBounded = member.0.contains { limit in
                let others = zip(members, shares).filter { $0.0.0.contains { $0.group == limit.group } }
                return (used[limit.group] ?? 0) + slack >= limit.bytesPerSecond
                    && others.allSatisfy { $0.1 <= share + slack }
            }
            let isExhausted = member.0.contains { (used[$0.group] ?? 0) + slack >= $0.bytesPerSecond }
            #expect(isBounded || isExhausted && share >= member.1 ?? .max, "\(members) \(shares)")
        }
    }

    /// Each member is in two groups of a chain, so only one group after the other becomes the lowest of its members.
    @Test(arguments: [10, 1_000, 10_000])
    func `a division takes steps in proportion to the members`(count: Int) {
        var filling = MaxMinDivision(groupLimits: (0...count).map { 10 + 20 * $0 })
        let shares = filling.divideRemainder(
            among: (0..<count).map { .init(groupNumbers: [$0, $0 + 1], maximumUsefulShare: nil) })
        #expect(shares == (0..<count).map { 10 + 10 * $0 })
        #expect(filling.undividedRateByGroup.dropLast().allSatisfy { $0 == 0 })
        #expect(filling.examinedStepCount <= 4 * count)
    }

    private func members(_ limits: [Limit], _ received: [(AttemptID, Int)]) -> [RateShares.LimitedAttempt] {
        received.map { .init(attempt: $0, worker: worker, limits: limits, receivedBytes: $1) }
    }

    @Test func `a member that uses little of its share gives it up, and gets it back`() throws {
        var book = RateShares()
        var now = MonotonicTime(nanoseconds: 0)
        let limit = Limit(group: .allAttempts, bytesPerSecond: 1 << 20)
        let (a, b) = (try attempt(1), try attempt(2))
        #expect(book.addAttempt(a, [limit], now: now) == 1 << 20)
        #expect(book.addAttempt(b, [limit], now: now) == 1 << 19)
        #expect(book.nextDivisionAt == now.advanced(byMilliseconds: 50))
        func members(_ received: Int...) -> [RateShares.LimitedAttempt] {
            self.members([limit], Array(zip([a, b], received)))
        }
        now = now.advanced(byMilliseconds: 50)
        #expect(
            book.divideLimits(among: members(0, 0), now: now) == [
                .init(worker: worker, attempt: a, bytesPerSecond: 1 << 19)
            ])
        now = now.advanced(byMilliseconds: 500)
        #expect(book.divideLimits(among: members(1 << 18, 0), now: now) == [], "too early for a measurement")
        now = now.advanced(byMilliseconds: 500)
        let changes = book.divideLimits(among: members(1 << 19, 0), now: now)
        let least = 16 << 10
        let most = (1 << 20) - least
        #expect(changes.map(\.bytesPerSecond) == [most, least])
        now = now.advanced(byMilliseconds: 1_000)
        let back = book.divideLimits(among: members(3 << 19, least), now: now)
        #expect(back.map(\.bytesPerSecond) == [Int](repeating: 1 << 19, count: 2))
        #expect(book.checkInvariants() == [])
    }

    @Test func `a young member keeps its share although others are measured`() throws {
        var book = RateShares()
        var now = MonotonicTime(nanoseconds: 0)
        let limit = Limit(group: .allAttempts, bytesPerSecond: 1 << 20)
        let (a, b) = (try attempt(1), try attempt(2))
        _ = book.addAttempt(a, [limit], now: now)
        _ = book.divideLimits(among: members([limit], [(a, 0)]), now: now)
        now = now.advanced(byMilliseconds: 1_200)
        #expect(book.addAttempt(b, [limit], now: now) == 1 << 19)
        now = now.advanced(byMilliseconds: 50)
        let changes = book.divideLimits(among: members([limit], [(a, 1 << 20), (b, 0)]), now: now)
        #expect(changes == [.init(worker: worker, attempt: a, bytesPerSecond: 1 << 19)])
        now = now.advanced(byMilliseconds: 960)
        let later = book.divideLimits(among: members([limit], [(a, 3 << 19), (b, 0)]), now: now)
        let rates: [Int?] = [(1 << 20) - (16 << 10), 16 << 10]
        #expect(later.map(\.bytesPerSecond) == rates, "a second after its start")
    }

    @Test func `a start knows the other attempts under its limits at once`() throws {
        var book = RateShares()
        let now = MonotonicTime(nanoseconds: 0)
        let own = Limit(group: .attemptsForHandler(1), bytesPerSecond: 600)
        let attempts = try (1...5).map { try attempt($0) }
        #expect(book.addAttempt(attempts[0], [bus], now: now) == 1_000)
        #expect(book.addAttempt(attempts[1], [bus, own], now: now) == 500)
        #expect(book.addAttempt(attempts[2], [bus, own], now: now) == 300)
        book.removeAttempt(attempts[1], now: now)
        book.removeAttempt(attempts[1], now: now)
        #expect(book.addAttempt(attempts[3], [bus], now: now) == 333)
        #expect(book.addAttempt(attempts[4], [own], now: now) == 300)
        #expect(book.checkInvariants() == [])
        for attempt in attempts { book.removeAttempt(attempt, now: now) }
        #expect(book.isEmpty && book.checkInvariants() == [])
    }

    @Test func `an attempt that has ended or is no longer limited is forgotten`() throws {
        var book = RateShares()
        let now = MonotonicTime(nanoseconds: 0)
        let a = try attempt(1)
        _ = book.addAttempt(a, [bus], now: now)
        let lifted = RateShares.LimitedAttempt(attempt: a, worker: worker, limits: [], receivedBytes: .max)
        #expect(
            book.divideLimits(among: [lifted], now: now) == [.init(worker: worker, attempt: a, bytesPerSecond: nil)])
        #expect(book.isEmpty && book.nextDivisionAt == nil)
        _ = book.addAttempt(a, [bus], now: now)
        #expect(book.divideLimits(among: [], now: now) == [])
        #expect(book.isEmpty && book.nextDivisionAt == nil)
        #expect(book.addAttempt(a, [bus], now: now) == 1_000, "its former start does not count")
        #expect(book.checkInvariants() == [])
    }

    @Test func `an attempt has a limit of a handler only while each division gives it one`() throws {
        var book = RateShares()
        let now = MonotonicTime(nanoseconds: 0)
        let own = Limit(group: .attemptsForHandler(1), bytesPerSecond: 600)
        let a = try attempt(1)
        _ = book.addAttempt(a, [bus, own], now: now)
        #expect(book.handlerLimit(of: a) == own && book.hasHandlerLimit(a))
        _ = book.divideLimits(among: members([bus], [(a, 0)]), now: now)
        #expect(book.handlerLimit(of: a) == nil && !book.hasHandlerLimit(a))
    }
}
