import EarshotWire
import Testing

@testable import earshot

/// The option `-j` beside the bus's own limit of transfers.
@Suite struct JobLimitTests {
    private func step(_ jobs: Int, _ limit: Int, isPrivate: Bool) -> JobLimit.Adjustment? {
        let settings = """
            {"settings":[{"name":"origin-limit","pattern":"a.example","value":1},\
            {"name":"origin-limit","value":\(limit)}]}
            """
        return JobLimit(jobs: jobs, isBusPrivate: isPrivate).adjustment(for: Array(settings.utf8))
    }

    @Test func `a private bus gets the limit and the place that is reserved`() throws {
        #expect(step(8, 8, isPrivate: true) == .raiseOriginLimit(try #require(SettingWords(["origin-limit", "9"]))))
        #expect(step(8, 9, isPrivate: true) == nil)
    }

    @Test func `a lower limit of a shared bus is a warning with the next step`() {
        #expect(step(8, 8, isPrivate: false) == nil)
        guard case .warning(let text) = step(8, 6, isPrivate: false) else {
            Issue.record("no warning")
            return
        }
        #expect(text.contains("at most 6 transfers") && text.hasSuffix("`earshot set origin-limit 8`"))
    }

    @Test func `an answer without the limit changes nothing`() {
        #expect(JobLimit(jobs: 1, isBusPrivate: true).adjustment(for: Array("{}".utf8)) == nil)
    }
}
