import EarshotWire
import Testing

@testable import EarshotCore

/// The list of redirects in the terminal of a request.
struct RedirectListTests {
    private var rig = CoreRig()
    private let client: ClientID
    private let worker: WorkerID

    init() {
        worker = rig.worker()
        client = rig.client(1)
    }

    private mutating func submit(_ request: String, _ url: String = "http://o/a", by client: ClientID) {
        rig.fetch("h", request, url, by: client)
    }

    /// Ends the jobs of the pass: `/a` and `/b` lead to the next letter, `/c` is answered with `status`.
    private mutating func answer(_ status: Int = 200) {
        let jobs = rig.jobs
        let worker = worker
        rig.pass { rig in
            for job in jobs {
                switch job.url.suffix(2) {
                case "/a": rig.done(job, by: worker, status: 301, fields: "location: /b?token=1")
                case "=1": rig.done(job, by: worker, status: 307, fields: "location: http://me:word@p/c")
                default: rig.done(job, by: worker, status: status)
                }
            }
        }
    }

    /// The redirects of the terminals of a client in this pass, by request.
    private func redirects(for client: ClientID) -> [String: [Terminal.Redirect]] {
        var found: [String: [Terminal.Redirect]] = [:]
        for case .client(.deliverTerminal(client, let terminal, _)) in rig.actions {
            found[terminal.request.description] = terminal.response?.redirects
        }
        return found
    }

    /// Credentials in the field are not followed, so the list has none.
    private static let all = [
        Terminal.Redirect(status: 301, url: "http://o/b?token=1"),
        Terminal.Redirect(status: 307, url: "http://p/c"),
    ]

    @Test mutating func `a result on the disk has no redirects, whose URLs may be secret`() throws {
        var bed = DurableBed()
        let worker = bed.rig.worker()
        let client = bed.rig.client(1)
        bed.pass { $0.fetch("h", "1", "http://o/a", by: client) { $0.options.isDurable = true } }
        for fields in ["location: /b?token=1", "location: /c", ""] {
            let job = try #require(bed.rig.jobs.first)
            bed.pass { $0.done(job, by: worker, status: fields.isEmpty ? 200 : 301, fields: fields) }
        }
        let head = try #require(bed.disk.rows.values.first?.result?.terminalHead)
        #expect(!String(decoding: head, as: UTF8.self).contains("token"))
        rig = bed.rig
        #expect(redirects(for: client)["1"]?.map(\.url) == ["http://o/b?token=1", "http://o/c"])
    }

    @Test mutating func `all subscribers learn the redirects of a request`() {
        let other = rig.client(2)
        rig.send(.subscribe(HandlerPattern("h")!), by: other)
        submit("1", by: client)
        submit("2", by: client)
        rig.pass()
        answer()
        // Joins the flight of the first target.
        submit("3", "http://o/b?token=1", by: client)
        answer()
        answer()
        #expect(redirects(for: client) == ["1": Self.all, "2": Self.all, "3": [Self.all[1]]])
        #expect(redirects(for: other) == redirects(for: client))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an error page has the redirects, and a response without redirects has none`() {
        submit("1", by: client)
        rig.pass()
        answer()
        answer()
        answer(404)
        #expect(redirects(for: client) == ["1": Self.all])
        submit("2", "http://o/c", by: client)
        rig.pass()
        answer()
        #expect(redirects(for: client) == ["2": []])
    }
}
