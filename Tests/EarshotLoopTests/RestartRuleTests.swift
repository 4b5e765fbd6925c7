import EarshotLoop
import Testing

struct RestartRuleTests {
    /// Chance that always takes the same share away.
    private struct Fixed: RandomNumberGenerator {
        let bits: UInt64
        mutating func next() -> UInt64 { bits }
    }

    private var nothingTaken = Fixed(bits: .max)
    private var mostTaken = Fixed(bits: 0)

    private static func isAbout(_ left: Duration, _ right: Duration) -> Bool {
        abs((left - right) / .seconds(1)) < 0.000_001
    }

    @Test mutating func `the first quick death costs no pause, the next ones twice as much each up to the longest`() {
        var rule = RestartRule()
        var pauses: [Duration] = []
        for _ in 1...12 { pauses.append(rule.lifeEnded(after: .seconds(1), using: &nothingTaken)) }
        let expected = [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30].map { Duration.seconds($0) }
        #expect(zip(pauses, expected).allSatisfy { Self.isAbout($0, $1) }, "\(pauses)")
    }

    @Test mutating func `chance takes up to half of a pause away`() {
        var rule = RestartRule()
        for _ in 1...3 { _ = rule.lifeEnded(after: .zero, using: &mostTaken) }
        #expect(Self.isAbout(rule.lifeEnded(after: .zero, using: &mostTaken), .milliseconds(200)))
    }

    @Test mutating func `five quick deaths in a row are a failure`() {
        var rule = RestartRule()
        for death in 1...6 {
            _ = rule.lifeEnded(after: .milliseconds(9_999), using: &nothingTaken)
            #expect(rule.isFailing == (death >= 5))
            #expect(rule.quickDeaths == death)
        }
    }

    @Test mutating func `a good life makes it the first time again, whether it has ended or goes on`() {
        var rule = RestartRule()
        for _ in 1...6 { _ = rule.lifeEnded(after: .zero, using: &nothingTaken) }
        #expect(rule.lifeEnded(after: RestartRule.goodLife, using: &nothingTaken) == .zero)
        #expect(rule == RestartRule())
        for _ in 1...6 { _ = rule.lifeEnded(after: .zero, using: &nothingTaken) }
        rule.livesWell()
        #expect(rule == RestartRule())
    }

    @Test mutating func `however often it dies, the pause stays within its bound`() {
        var rule = RestartRule()
        for _ in 1...10_000 {
            #expect(rule.lifeEnded(after: .zero, using: &nothingTaken) <= RestartRule.longestPause)
        }
    }
}
