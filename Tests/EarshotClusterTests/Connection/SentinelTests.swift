import EarshotCluster
import EarshotCore
import EarshotLoop
import Glibc
import RESP
import Testing

/// A primary with two replicas and three sentinels, and the death of the primary.
@Suite struct SentinelTests {
    @Test func `nodes follow a failover, and no want that is asserted is lost`() throws {
        let ports = try RedisServer.freePorts(6)
        let primary = try RedisServer(port: ports[0])
        let replicas = try ports[1...2].map { port in
            try RedisServer(port: port, ["replicaof 127.0.0.1 \(ports[0])", "repl-diskless-sync-delay 0"])
        }
        let sentinels = try ports[3...5].map { port in
            try RedisServer(
                port: port, isSentinel: true,
                [
                    "sentinel monitor bus 127.0.0.1 \(ports[0]) 2", "sentinel down-after-milliseconds bus 1000",
                    "sentinel failover-timeout bus 6000",
                ])
        }
        let rig = try ClientRig()
        let places = try ports[3...5].map { try #require(EngineAddress("127.0.0.1:\($0)")) }
        let options = ClientRig.options(.sentinels(places, primary: "bus"))
        try awaitCompany(places[0])
        for _ in 0..<2 { try rig.join(options) }
        #expect(rig.events[0].contains(.warning(.writesWithoutReplicas)))
        rig.forget()

        // One node asserts 20 wants again and again, the other fetches. The primary dies after ten results.
        var open = Set(1...20 as ClosedRange<UInt64>)
        var isKilled = false
        var isBusy = false
        try rig.run("all results", for: .seconds(300)) {
            for event in rig.events[0] {
                switch event {
                case .resultReceived(let key, _):
                    if let flight = (1...20).first(where: { ClusterKey.flight($0) == key }) { open.remove(flight) }
                case .wantsAnswered(let answers):
                    for answer in answers {
                        guard case .ended = answer.state else { continue }
                        if let flight = (1...20).first(where: { ClusterKey.flight($0) == answer.key }) {
                            open.remove(flight)
                        }
                    }
                case .joined: if !open.isEmpty { rig.submit(0, .wantFlights(open.map { .make($0, age: 60_000) })) }
                default: break
                }
            }
            for event in rig.events[1] {
                switch event {
                case .flightsGranted(let grants, _):
                    isBusy = false
                    if !grants.isEmpty { rig.submit(1, .reportCompletions(grants.map { $0.completed() })) }
                case .left, .joined: isBusy = false
                default: break
                }
            }
            if !isKilled, open.count == 20 { rig.submit(0, .wantFlights(open.map { .make($0, age: 60_000) })) }
            if !isKilled, open.count <= 10 {
                isKilled = true
                primary.send(SIGKILL)
            }
            rig.forget()
            if !isBusy {
                isBusy = true
                rig.submit(1, .takeFlights(slots: 1))
            }
            return open.isEmpty
        }
        #expect(isKilled)
        withExtendedLifetime((replicas, sentinels)) {}
    }

    @Test func `a sentinel answers PING on the watching connection, and one that hangs is replaced`() throws {
        let ports = try RedisServer.freePorts(3)
        let primary = try RedisServer(port: ports[0])
        let sentinels = try ports[1...2].map { port in
            try RedisServer(port: port, isSentinel: true, ["sentinel monitor bus 127.0.0.1 \(ports[0]) 2"])
        }
        let rig = try ClientRig()
        let relays = try sentinels.map { try FaultyServer(.relay(to: $0.socket, cutAfter: -1), on: rig.loop) }
        let options = ClientRig.options(.sentinels(relays.map(\.address), primary: "bus"), timeout: 1_500)
        let number = try rig.join(options)
        // Longer than twice the timeout, so heartbeats are answered.
        let start = LoopTime.readClock()
        try rig.run("heartbeats") { LoopTime.readClock().since(start) > .milliseconds(4_000) }
        #expect(relays.map(\.connectionCount) == [1, 0])
        sentinels[0].send(SIGSTOP)
        try rig.run("another sentinel") { relays[1].connectionCount > 0 }
        #expect(!rig.events[number].contains { $0.isLeft })
        withExtendedLifetime((primary, sentinels)) {}
    }

    /// Awaits that a sentinel knows the replicas and the other sentinels.
    private func awaitCompany(_ sentinel: EngineAddress) throws {
        let connection = try ServerConnection(sentinel)
        let loop = try EventLoop()
        let end = LoopTime.readClock().advanced(by: .seconds(60))
        while LoopTime.readClock() < end {
            // Sentinels report their progress in no other way. A question every 20 ms leaves them the processor.
            try loop.run(for: .milliseconds(20)) { false }
            let reply = try connection.send("SENTINEL", "master", "bus")
            guard case .array(let values) = reply else { continue }
            let texts = values.compactMap(\.text)
            func value(_ name: String) -> String? { texts.firstIndex(of: name).map { texts[$0 + 1] } }
            if value("num-slaves") == "2", value("num-other-sentinels") == "2" { return }
        }
        Issue.record("the sentinels did not find each other")
    }
}
