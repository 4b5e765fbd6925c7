internal import Curl
internal import EarshotLoop

/// Running transfers, distributed over several multi handles according to `TransferSpread`.
final class TransferPool {
    /// A transfer and its shard.
    struct Running {
        fileprivate let shard: Shard
        fileprivate let transfer: Transfer

        /// Milliseconds since the connection last received bytes; nil without a connection.
        var silentMilliseconds: Int? { transfer.silentMilliseconds }
    }

    /// One multi handle and its timer.
    fileprivate final class Shard {
        let multi: Multi
        let watch: DescriptorWatch
        /// Time of the next call that libcurl requested; nil without one.
        var dueTime: LoopTime?
        /// Number of running transfers at the last update of the pool's total.
        var runningCount = 0

        init(_ multi: Multi, _ watch: DescriptorWatch) {
            self.multi = multi
            self.watch = watch
        }
    }

    private let loop: EventLoop
    private let makeWatch: DescriptorWatch.Maker
    private var spread = TransferSpread(slots: 1)
    /// Indexed by shard number. A shard is created on first use.
    private var shards: [Shard?] = []
    private var finished: [FinishedTransfer] = []

    /// Number of running transfers.
    private(set) var count = 0

    /// - Parameter makeWatch: Called once for each multi handle.
    init(loop: EventLoop, makeWatch: @escaping DescriptorWatch.Maker) {
        self.loop = loop
        self.makeWatch = makeWatch
    }

    /// Creates the first shard, so that the first transfer does not pay for it.
    func prepare() throws(CurlError) { _ = try shard(0) }

    /// Sets the number of slots for which later transfers are distributed, and the number for which descriptors suffice.
    func makeRoom(slots: Int, of mostSlots: Int) {
        spread = TransferSpread(slots: slots, mostSlots: mostSlots)
        for case let shard? in shards { shard.multi.keepConnections(spread.connectionsPerShard) }
    }

    /// Time of the next call that libcurl requested; nil without one.
    var dueTime: LoopTime? {
        var first: LoopTime?
        for case let shard? in shards {
            if let due = shard.dueTime { first = min(first ?? due, due) }
        }
        return first
    }

    /// Starts a transfer. `runPass` returns it after its end.
    ///
    /// - Parameters:
    ///   - host: Host to connect to, which selects the shard.
    ///   - port: Port of that host.
    func start(
        _ request: TransferRequest, host: String, port: UInt16, sink: any TransferSink
    ) throws(CurlError) -> Running {
        let number = spread.shard(host: host, port: port, running: count) { runningCount(in: $0) }
        let shard = try shard(number)
        let transfer = try shard.multi.start(request, sink: sink)
        take(shard)
        return Running(shard: shard, transfer: transfer)
    }

    /// Ends a transfer immediately and closes its socket. `runPass` does not return it.
    func cancel(_ running: Running) {
        finished.removeAll { $0.transfer === running.transfer }
        running.shard.multi.cancel(running.transfer)
        take(running.shard)
    }

    /// Resumes a transfer whose sink postponed bytes.
    func resume(_ running: Running) {
        running.shard.multi.resume(running.transfer)
        take(running.shard)
    }

    /// Runs due timers of libcurl and returns the transfers that have ended since the last call.
    func runPass() -> [FinishedTransfer] {
        for case let shard? in shards {
            guard let due = shard.dueTime, due <= loop.now else { continue }
            shard.dueTime = nil
            shard.multi.timerFired()
            take(shard)
        }
        defer { finished.removeAll(keepingCapacity: true) }
        return finished
    }

    private func runningCount(in number: Int) -> Int {
        number < shards.count ? shards[number]?.runningCount ?? 0 : 0
    }

    private func shard(_ number: Int) throws(CurlError) -> Shard {
        while shards.count <= number { shards.append(nil) }
        if let shard = shards[number] { return shard }
        let multi = try Multi.make(maxConnections: spread.connectionsPerShard)
        // The pool owns the shard, and the shard owns the watch that calls this closure.
        let watch = makeWatch { [unowned self] in ready($0, $1, number) }
        let shard = Shard(multi, watch)
        shards[number] = shard
        return shard
    }

    private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness, _ number: Int) {
        guard let shard = shards[number] else { return }
        shard.multi.descriptorReady(
            descriptor, reads: !readiness.isDisjoint(with: [.readable, .hangUp]),
            writes: readiness.contains(.writable), fails: readiness.contains(.error))
        take(shard)
    }

    private func take(_ shard: Shard) {
        for interest in shard.multi.takeInterests() {
            shard.watch.set(
                interest.descriptor, reads: interest.reads, writes: interest.writes, isNew: interest.isNew)
        }
        switch shard.multi.takeTimeout() {
        // A delay of 0 means this pass. A later time would make the loop sleep for a millisecond.
        case .after(0): shard.dueTime = loop.now
        case .after(let milliseconds): shard.dueTime = LoopTime.read().advanced(milliseconds: milliseconds)
        case .cancel: shard.dueTime = nil
        case nil: break
        }
        finished += shard.multi.takeFinished()
        let running = shard.multi.runningCount
        count += running - shard.runningCount
        shard.runningCount = running
    }
}

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
