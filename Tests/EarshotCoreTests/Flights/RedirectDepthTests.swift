import EarshotWire
import Testing

@testable import EarshotCore

/// Length of chains of flights: at most the redirect limit of one request, for any server.
struct RedirectDepthTests {
    @Test func `a chain through pages that are all wanted is no longer than a request's redirects may be`() {
        var rig = CoreRig()
        let worker = rig.worker(slots: 1)
        let a = rig.client(1, window: 4_096)
        let pages = 2_000
        rig.pass { rig in
            for page in 0..<pages { rig.fetch("h", "\(page)", "http://h/\(page)", by: a) }
        }
        var reported: [String: Int] = [:]
        for _ in 0..<(2 * pages) {
            guard let job = rig.jobs.first else { break }
            let page = Int(job.url.dropFirst("http://h/".count)) ?? 0
            rig.pass { rig in
                if page == pages - 1 {
                    rig.done(job, by: worker)
                } else {
                    rig.done(job, by: worker, status: 302, fields: "location: http://h/\(page + 1)")
                }
            }
            for case .client(.deliverTerminal(_, let terminal, _)) in rig.actions {
                if case .failed(let failure) = terminal.outcome {
                    reported[failure.code, default: 0] += 1
                } else {
                    reported["result", default: 0] += 1
                }
            }
        }
        // Ten redirects lead the last eleven pages to the end. All other pages are further away.
        #expect(reported == ["result": 11, "too-many-redirects": pages - 11])
        #expect(rig.core.ledger.requests.pending == 0)
    }
}
