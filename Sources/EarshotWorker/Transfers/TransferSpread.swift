/// Assignment of transfers to multi handles (shards).
///
/// The cost of libcurl's calls grows with the number of connections of the multi handle. A connection can be reused
/// only within its multi handle.
///
/// A small number of transfers shares the first shard. Beyond it, a hash of the server selects the shard; if that one
/// is full, the next shard with room is used. A server with thousands of slow transfers thus delays only some of the
/// others, and its own transfers still find connections to reuse.
struct TransferSpread: Equatable {
    /// Number of multi handles.
    let shards: Int
    /// Maximum number of connections of each, including idle ones kept for reuse.
    let connectionsPerShard: Int

    /// - Parameters:
    ///   - slots: Maximum number of concurrent transfers, at least 1.
    ///   - mostSlots: Number of transfers for which the descriptors suffice.
    init(slots: Int, mostSlots: Int = .max / 2) {
        shards = max(1, slots / Limits.usualShardTransfers)
        // At most two connections per slot in total. Each multi handle needs two descriptors for itself.
        connectionsPerShard = shards == 1 ? min(Limits.onlyShardConnections, 2 * mostSlots) : 2 * slots / shards - 2
    }

    /// Returns the number of the shard for a transfer to this server.
    ///
    /// - Parameters:
    ///   - running: Number of running transfers in all shards.
    ///   - shardRunning: Returns the number of running transfers in one shard.
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
        // All shards are full: the number of slots has shrunk while earlier transfers still run.
        return first
    }
}
