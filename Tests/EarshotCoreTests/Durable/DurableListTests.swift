import EarshotWire
import Testing

@testable import EarshotCore

/// Durable requests that have ended, in the answers to QUERY: with URL, status, cause and attempts, and failed ones as
/// failed.
struct DurableListTests {
    private static func bed() -> DurableBed {
        var bed = DurableBed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { rig in
            for (id, url) in [("1", "http://a/gone"), ("2", "http://b/refused"), ("3", "http://c/fine")] {
                rig.fetch("h", id, url, by: client) { fetch in
                    fetch.options.isDurable = true
                    fetch.options.subscribes = false
                    fetch.options.retries = 0
                }
            }
        }
        let jobs = bed.rig.jobs.sorted { $0.url < $1.url }
        bed.pass { rig in
            rig.done(jobs[0], by: worker, status: 404)
            rig.failed(jobs[1], "connect-refused", by: worker)
            rig.done(jobs[2], by: worker)
        }
        return bed
    }

    private static func answer(_ query: Query, _ bed: inout DurableBed) -> String {
        let client = bed.rig.client(9)
        bed.pass { $0.send(.query(query), by: client) }
        let answers = bed.rig.actions.compactMap { action in
            if case .client(.answerQuery(_, _, let json)) = action {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }
        bed.pass { $0.core.clientLost(client, now: $0.now) }
        return answers.first ?? ""
    }

    /// Members of the entry of a request that follow its age.
    private static func entry(_ id: String, in list: String) -> String {
        let entries = list.split(separator: "{").first { $0.contains(#""request":"\#(id)""#) } ?? ""
        return entries.firstRange(of: #""url""#).map { String(entries[$0.lowerBound...].prefix { $0 != "}" }) } ?? ""
    }

    @Test(arguments: [false, true])
    func `the list states URL, attempts, status and code, also after a restart`(restarts: Bool) {
        var bed = Self.bed()
        if restarts { bed.restart() }
        let list = Self.answer(.requests, &bed)
        #expect(
            Self.entry("1", in: list) == #""url":"http://a/gone","attempts":1,"status":404,"code":"http-status""#)
        #expect(Self.entry("2", in: list) == #""url":"http://b/refused","attempts":1,"code":"connect-refused""#)
        #expect(Self.entry("3", in: list) == #""url":"http://c/fine","attempts":1,"status":200"#)
    }

    @Test func `a failure on disk counts as failed, until it is repeated or removed`() {
        var bed = Self.bed()
        #expect(bed.rig.core.ledger.requests.pending == 3 && bed.rig.core.ledger.requests.keptFailures == 2)
        #expect(Self.answer(.handlers, &bed).contains(#""pending":3,"failed-kept":2"#))
        let client = bed.rig.client(2)
        bed.pass { $0.send(.retry(HandlerID("h")!, RequestID("2")!), by: client) }
        #expect(bed.rig.core.ledger.requests.keptFailures == 1)
        bed.pass { $0.remove("h", "1", by: client) }
        #expect(bed.rig.core.ledger.requests.keptFailures == 0)
    }

    @Test func `the reason of a failure on disk is the failure, and not a missing subscriber`() {
        var bed = Self.bed()
        let failed = Self.answer(.explainRequest(HandlerID("h")!, RequestID("1")!), &bed)
        for part in [#""url":"http://a/gone""#, #""status":404"#, #""code":"http-status""#, #""attempts":1"#] {
            #expect(failed.contains(part), "\(failed)")
        }
        #expect(failed.contains(#""waits-for":"retry""#) && !failed.contains("subscriber"))
        #expect(
            Self.answer(.explainRequest(HandlerID("h")!, RequestID("3")!), &bed).contains(#""waits-for":"subscriber""#))
    }

    @Test func `a failure without a response states its URL`() {
        var bed = Self.bed()
        let client = bed.rig.client(2)
        bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
        var urls: [String: String] = [:]
        for action in bed.rig.actions {
            guard case .client(.deliverTerminal(client, let terminal, _)) = action else { continue }
            urls[terminal.request.description] = terminal.url
        }
        #expect(urls == ["1": "http://a/gone", "2": "http://b/refused", "3": "http://c/fine"])
    }
}
