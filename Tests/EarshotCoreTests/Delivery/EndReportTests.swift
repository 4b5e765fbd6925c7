import EarshotWire
import Testing

@testable import EarshotCore

/// Ends of requests that the supervisor gets for the program of `on-complete`.
struct EndReportTests {
    private func ends(_ rig: CoreRig) -> [EndedRequest] {
        rig.actions.compactMap { if case .supervisor(.requestEnded(let ended)) = $0 { ended } else { nil } }
    }

    @Test func `each request has one end, whether or not a client is subscribed`() {
        var rig = CoreRig()
        rig.core.shellFeatures.isReportingRequestEnds = true
        let worker = rig.worker()
        let clients = [rig.client(1), rig.client(2)]
        rig.pass { rig in
            for client in clients { rig.send(.subscribe(.subtree(HandlerID("h")!)), by: client) }
            rig.fetch("h/1", "1", "http://a/", by: clients[0])
            rig.fetch("h/1", "2", "http://a/", by: clients[0])
            rig.fetch("x", "3", "http://b/", by: clients[0]) { $0.options.subscribes = false }
            rig.fetch("h/1", "4", "no-url", by: clients[0])
        }
        #expect(ends(rig).map(\.failure) == ["malformed-url"] && ends(rig).first?.url == nil)
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker, length: 3) } }
        #expect(ends(rig).map(\.request.description).sorted() == ["1", "2", "3"])
        #expect(ends(rig).allSatisfy { $0.status == 200 && $0.bodyLength == 3 && $0.failure == nil })
        #expect(Set(ends(rig).compactMap(\.url)) == ["http://a/", "http://b/"])
    }

    @Test func `a removed request has none, and without a program none has`() {
        var rig = CoreRig()
        rig.core.shellFeatures.isReportingRequestEnds = true
        let worker = rig.worker()
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://a/", by: client) }
        rig.pass { $0.remove("h", by: client) }
        #expect(ends(rig).isEmpty)
        rig.core.shellFeatures.isReportingRequestEnds = false
        rig.pass { $0.fetch("h", "2", "http://b/", by: client) }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: client) == ["h 2 200"] && ends(rig).isEmpty)
    }
}
