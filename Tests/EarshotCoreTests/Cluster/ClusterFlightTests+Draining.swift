import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Flights of a node that drains or ends, and starts beyond its own limit.
extension ClusterFlightTests {
    @Test func `a draining node hands its queued work to the others`() {
        var (node, client, _, want) = claimed()
        node.pass { $0.core.beginDraining() }
        node.pass { rig in rig.fetch("h", "late", "http://example.com/late", by: client) }
        #expect(node.takes.allSatisfy { $0 == 0 })
        #expect(!node.rig.core.isDrained)
        let result = SharedResult(
            .response(SharedResult.Response(status: 204, bodyLength: 0, sha256: nil, bodyAddress: nil, fields: [])))
        node.engine(.resultReceived(want.key, result.encodedBytes))
        #expect(node.rig.terminals(for: client) == ["h r 204"])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a draining node reads the bodies of results`() {
        var (node, client, _, want) = claimed()
        node.pass { $0.core.awaitOwnWorkers(until: $0.now) }
        node.pass { _ = $0.worker(2, slots: 4, schemes: [BodyAddress.scheme]) }
        node.pass { $0.core.beginDraining() }
        let (second, _) = pulling2(&node, want)
        #expect(!node.rig.core.isDrained)
        // Also by a worker that has come later.
        node.pass { $0.core.workerLost(WorkerID(rawValue: 2), now: $0.now) }
        #expect(node.wants.map(\.lane) == [.shared])
        var puller = WorkerID(rawValue: 0)
        node.pass { puller = $0.worker(3, slots: 4, schemes: [BodyAddress.scheme]) }
        let (third, _) = pulling2(&node, want)
        #expect(second.attempt != third.attempt)
        node.pass { $0.done(third, by: puller) }
        #expect(node.rig.terminals(for: client) == ["h r 200"])
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a draining node leaves its own flights to its successor`() {
        var (node, client, _, _) = claimed()
        node.pass { rig in
            rig.fetch("h", "own", "http://example.com/own", by: client) {
                $0.httpFields = Array("authorization: Basic x".utf8)
            }
            rig.core.beginDraining()
        }
        #expect(node.wants.isEmpty)
        #expect(node.rig.core.audit() == [])
    }

    @Test func `a draining node releases an attempt whose worker has died`() {
        var (node, _, worker, want) = claimed()
        node.grant([want])
        node.pass { rig in
            rig.core.beginDraining()
            rig.core.workerLost(worker, now: rig.now)
        }
        #expect(node.ends.map(\.outcome) == [.released])
        #expect(node.rig.core.audit() == [])
        // Also one that served other nodes only.
        var (other, client, another, wanted) = claimed()
        other.pass { $0.remove("h", by: client) }
        other.grant([wanted], isOwn: false)
        other.pass { rig in
            rig.core.beginDraining()
            rig.core.workerLost(another, now: rig.now)
        }
        #expect(other.ends.map(\.outcome) == [.released])
        #expect(other.rig.core.records.flights.count == 0)
        #expect(other.rig.core.isDrained)
        #expect(other.rig.core.audit() == [])
    }

    @Test func `a node that ends gives its bodies to other nodes until then`() {
        var (node, _, worker, want) = claimed()
        node.grant([want])
        let job = node.rig.jobs[0]
        node.pass { $0.done(job, by: worker) }
        let reader = ClientID(rawValue: 9)
        let place = BodyAddress(address: ClusterRig.address, body: HeldBody(key: want.key, token: FencingToken(101)))
        node.pass { rig in
            rig.core.beginDraining()
            rig.connect(reader, user: PrincipalName("node:shop"))
            rig.send(.hello(Hello(window: 16)), by: reader)
            rig.fetch("pull", "1", place.url, by: reader)
        }
        #expect(node.rig.terminals(for: reader) == ["pull 1 200"])
    }

    @Test func `starts that the engine permits may exceed the limit that this node would apply`() {
        var (node, client, _, want) = claimed()
        node.pass { rig in
            for number in 0..<7 { rig.fetch("h", "x\(number)", "http://example.com/\(number)", by: client) }
        }
        // The engine has forgotten attempts of this node.
        node.grant([want] + node.wants)
        #expect(node.rig.jobs.count == 8)
        #expect(node.rig.core.audit() == [])
    }
}
