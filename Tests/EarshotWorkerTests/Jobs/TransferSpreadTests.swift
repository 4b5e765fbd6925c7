import Testing

@testable import EarshotWorker

/// Assignment of transfers to multi handles.
@Suite struct TransferSpreadTests {
    @Test func `few transfers share a multi handle and many are spread by server`() {
        let spread = TransferSpread(slots: 1_600)
        #expect(spread.shardCount == 20)
        let hosts = (0..<300).map { "host-\($0).example" }
        #expect(Set(hosts.map { place($0, in: spread, running: Limits.maximumShardTransfers - 1) }) == [0])
        #expect(Set(hosts.map { place($0, in: spread) }) == Set(0..<20))
        let ports = (1...300).map { UInt16($0) }
        #expect(Set(ports.map { place("a.example", $0, in: spread) }) == Set(0..<20))
    }

    @Test func `a server's transfers stay together, and those beyond a multi handle's share go to the next`() {
        let spread = TransferSpread(slots: 1_600)
        let home = place("a.example", in: spread)
        #expect(place("a.example", in: spread, full: [home + 1]) == home)
        #expect(place("a.example", in: spread, full: [home]) == (home + 1) % 20)
        #expect(place("a.example", in: spread, full: [home, (home + 1) % 20]) == (home + 2) % 20)
    }

    @Test func `all slots of one server find a multi handle with room`() {
        for slots in [1, 79, 80, 159, 160, 200, 1_000, 9_999, 10_000] {
            let spread = TransferSpread(slots: slots)
            var running = [Int](repeating: 0, count: spread.shardCount)
            for total in 0..<slots {
                running[spread.shardIndex(host: "a.example", port: 80, running: total) { running[$0] }] += 1
            }
            #expect(running.allSatisfy { $0 <= max(Limits.maximumShardTransfers, spread.shardCount == 1 ? slots : 0) })
        }
    }

    @Test func `a multi handle keeps the connections of all that it may run, and all together are bounded`() {
        for slots in 1...10_000 {
            let spread = TransferSpread(slots: slots)
            #expect(spread.connectionsPerShard >= min(slots, Limits.maximumShardTransfers))
            #expect(
                (spread.connectionsPerShard + 2) * spread.shardCount
                    <= max(2 * slots, Limits.singleShardConnections + 2))
        }
    }

    @Test(arguments: [27, 32, 48, 64, 96, 128, 192, 256, 512, 1_024, 20_000])
    func `transfers and idle connections fit into the limit of descriptors`(limit: Int) {
        let slots = Limits.supportedSlots(descriptors: limit)
        #expect(slots >= 1)
        let spread = TransferSpread(slots: min(64, slots), maximumSlots: slots)
        // Each transfer may have a file, and the process has 24 descriptors besides.
        #expect(spread.connectionsPerShard * spread.shardCount + min(64, slots) + 24 <= limit)
        #expect(spread.connectionsPerShard >= min(64, slots))
    }

    @Test func `more transfers than a worker has slots for since they were lowered run on`() {
        let spread = TransferSpread(slots: 10)
        #expect(place("a.example", in: spread, full: [0]) == 0)
    }

    /// Returns the shard of a transfer while all multi handles except these have room.
    private func place(
        _ host: String, _ port: UInt16 = 80, in spread: TransferSpread, running: Int = 1_000, full: Set<Int> = []
    ) -> Int {
        spread.shardIndex(host: host, port: port, running: running) {
            full.contains($0) ? Limits.maximumShardTransfers : 0
        }
    }
}
