import Testing

@testable import earshot

/// Pauses before a child of the supervisor starts again, and crash loops.
struct RestartRuleTests {
    /// Generator without jitter.
    private struct Highest: RandomNumberGenerator {
        func next() -> UInt64 { .max }
    }

    /// Deterministic generator with the constants of Knuth's MMIX.
    private struct Seeded: RandomNumberGenerator {
        private var state: UInt64 = 1
        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state
        }
    }

    private var nothingTaken = Highest()

    private static func isAbout(_ left: Duration, _ right: Duration) -> Bool {
        abs((left - right) / .seconds(1)) < 0.000_001
    }

    @Test mutating func `the first quick death costs no pause, the next ones twice as much each up to the longest`() {
        var rule = RestartRule()
        var pauses: [Duration] = []
        for _ in 1...12 { pauses.append(rule.runEnded(after: .seconds(1), using: &nothingTaken)) }
        let expected = [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30].map { Duration.seconds($0) }
        #expect(zip(pauses, expected).allSatisfy { Self.isAbout($0, $1) }, "\(pauses)")
    }

    @Test func `chance takes up to half of a pause away`() throws {
        var chance = Seeded()
        let pauses = (1...1_000).map { _ in
            var rule = RestartRule()
            for _ in 1...3 { _ = rule.runEnded(after: .zero, using: &chance) }
            return rule.runEnded(after: .zero, using: &chance)
        }
        let shortest = try #require(pauses.min())
        let longest = try #require(pauses.max())
        #expect(shortest >= .milliseconds(200) && shortest < .milliseconds(210))
        #expect(longest <= .milliseconds(400) && longest > .milliseconds(390))
    }

    @Test mutating func `five quick deaths in a row are a failure`() {
        var rule = RestartRule()
        for death in 1...6 {
            _ = rule.runEnded(after: .milliseconds(9_999), using: &nothingTaken)
            #expect(rule.isFailing == (death >= 5))
            #expect(rule.consecutiveEarlyExits == death)
        }
    }

    @Test mutating func `a good life makes it the first time again, whether it has ended or goes on`() {
        var rule = RestartRule()
        for _ in 1...6 { _ = rule.runEnded(after: .zero, using: &nothingTaken) }
        #expect(rule.runEnded(after: RestartRule.minimumHealthyRun, using: &nothingTaken) == .zero)
        #expect(rule == RestartRule())
        for _ in 1...6 { _ = rule.runEnded(after: .zero, using: &nothingTaken) }
        rule.recordHealthyRun()
        #expect(rule == RestartRule())
    }

    @Test mutating func `however often it dies, the pause stays within its bound`() {
        var rule = RestartRule()
        for _ in 1...10_000 {
            #expect(rule.runEnded(after: .zero, using: &nothingTaken) <= RestartRule.maximumPause)
        }
    }
}
