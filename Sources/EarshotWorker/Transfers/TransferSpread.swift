/// Which multi handle runs which transfer: what libcurl does for one takes time in proportion to the connections of its
/// multi handle, and a connection is found again in its own alone.
///
/// Few transfers share the first. Of many, those to one server go to one while it has room, and to the next with room
/// beyond that: so neither has a server with thousands that wait all the others wait with it, nor does it take long for
/// what it answers itself.
struct TransferSpread: Equatable {
    /// How many multi handles there are.
    let shards: Int
    /// How many connections each keeps at most: its transfers' and some idle ones for the next requests.
    let connectionsPerShard: Int

    /// - Parameter slots: transfers at once, at least 1.
    init(slots: Int) {
        shards = max(1, slots / Limits.usualShardTransfers)
        // All together no more than two for each slot, and the two descriptors that a multi handle has itself.
        connectionsPerShard = shards == 1 ? Limits.onlyShardConnections : 2 * slots / shards - 2
    }

    /// The multi handle for a transfer to this server.
    ///
    /// - Parameters:
    ///   - running: how many transfers run in all.
    ///   - shardRunning: how many in one of them.
    func shard(host: String, port: UInt16, running: Int, shardRunning: (Int) -> Int) -> Int {
        guard running >= Limits.mostShardTransfers else { return 0 }
        // FNV-1a.
        let seed = 0xcbf2_9ce4_8422_2325 ^ UInt64(port)
        let hash = host.utf8.reduce(seed &* 0x100_0000_01b3) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        let first = Int(hash % UInt64(shards))
        for step in 0..<shards {
            let shard = (first + step) % shards
            if shardRunning(shard) < Limits.mostShardTransfers { return shard }
        }
        // Fewer slots than before, and more that still run.
        return first
    }
}
