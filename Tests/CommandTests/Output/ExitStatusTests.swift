import EarshotWire
import Testing

@testable import earshot

/// Exit codes of failures, and the counters of a run.
@Suite struct ExitStatusTests {
    @Test(arguments: [
        ("unsupported-scheme", 1), ("malformed-url", 3), ("unknown-host", 6), ("dns-failed", 6), ("connect-refused", 7),
        ("connect-failed", 7), ("address-refused", 7), ("protocol-error", 8), ("truncated", 18), ("http-status", 22),
        ("spool-full", 23), ("spool-failed", 23), ("write-failed", 23), ("timeout", 28), ("connect-timeout", 28),
        ("deadline", 28), ("bad-header", 43), ("unsupported-method", 43), ("limit", 43), ("redirect-loop", 47),
        ("too-many-redirects", 47), ("redirect-refused", 47), ("reset", 56), ("tls", 60), ("encoding-error", 61),
        ("too-large", 63), ("too-compressed", 63), ("digest-mismatch", 65), ("worker-lost", 5),
        ("proxy-refused", 97), ("proxy-unavailable", 97), ("a-code-of-a-later-version", 5),
    ])
    func `a code has the number that curl has for it, and 5 without one`(code: String, number: Int) {
        #expect(ExitStatus(code: code).rawValue == Int32(number))
    }

    @Test func `the numbers ascend`() {
        #expect(ExitStatus.allCases.map(\.rawValue) == ExitStatus.allCases.map(\.rawValue).sorted())
    }
}

@Suite struct TallyTests {
    private func tally(_ outcomes: [FetchOutcome]) -> Tally {
        var tally = Tally()
        for outcome in outcomes { tally.countOutcome(outcome) }
        return tally
    }

    private func failure(_ code: String) -> FetchOutcome { FetchOutcome(url: "http://h/", code: code, detail: "") }

    private func success(
        _ length: Int, _ source: Terminal.Source = .network, resumed: Int = 0
    ) throws -> FetchOutcome {
        var response = Terminal.Response(url: "http://h/")
        response.bodyByteCount = length
        response.source = source
        response.resumedBytes = resumed
        let terminal = Terminal(
            handler: try #require(HandlerID("h")), request: try #require(RequestID("1")), sequence: 1,
            outcome: .result(status: 200, response))
        return FetchOutcome(url: "http://h/", terminal)
    }

    @Test func `the exit status is the one cause of all failures`() throws {
        #expect(tally([]).status == .success)
        #expect(tally([try success(1)]).status == .success)
        #expect(tally([failure("timeout"), failure("deadline")]).status == .timedOut)
        #expect(tally([failure("timeout"), failure("tls")]).status == .someRequestsFailed)
        #expect(tally([try success(1), failure("tls")]).status == .someRequestsFailed)
    }

    @Test func `it counts bodies, bytes and answers of the cache`() throws {
        let tally = try tally([
            success(3), success(4, .cache), success(5, .revalidated), success(6, .sharedFlight),
            success(7, .resumed, resumed: 4), failure("tls"),
        ])
        #expect((tally.succeededCount, tally.failedCount, tally.totalCount) == (5, 1, 6))
        #expect((tally.bodyBytes, tally.cachedCount, tally.sharedCount, tally.resumedCount) == (25, 2, 1, 1))
        #expect((tally.resumedBytes, tally.newBytes) == (4, 21))
        #expect(
            RunSummary(urlCount: 6, tally: tally, seconds: 1).text
                == "5 files, 1 failed, 25 B in 1.0 s (21 B/s), 2 from the cache, 1 shared, continued 1 file at 4 B")
    }

    @Test func `the summary of one URL says where it was continued`() throws {
        let whole = try RunSummary(urlCount: 1, tally: tally([success(7, .resumed, resumed: 7)]), seconds: 1)
        #expect(whole.text == "1 file, 7 B in 1.0 s, continued at 7 B")
    }

    @Test(arguments: [
        (Terminal.Source.network, nil), (.sharedFlight, nil), (.clusterNode, nil), (.cache, "from the cache, fresh"),
        (.revalidated, "from the cache, revalidated"), (.resumed, "resumed at 1 B"),
    ])
    func `a body that was stored before the request has a message`(source: Terminal.Source, text: String?) throws {
        let resumed = source == .resumed ? 1 : 0
        #expect(try success(2, source, resumed: resumed).storedBodyNotice == text.map { "http://h/: \($0)" })
    }

    @Test func `lengths whose sum is too large for a number end at the largest`() throws {
        #expect(try tally([success(.max), success(1)]).bodyBytes == .max)
        let largest = try success(.max, .resumed, resumed: .max)
        #expect(tally([largest, largest]).newBytes == 0)
    }
}
