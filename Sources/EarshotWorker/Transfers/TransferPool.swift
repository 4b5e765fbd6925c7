internal import Curl
internal import EarshotLoop

/// Running transfers, distributed over several multi handles according to `TransferSpread`.
final class TransferPool {
    /// A transfer and its shard.
    struct RunningTransfer {
        fileprivate let shard: Shard
        fileprivate let transfer: Transfer

        /// Milliseconds since the connection last received bytes; nil without a connection.
        var millisecondsSinceLastInput: Int? { transfer.millisecondsSinceLastInput }
    }

    /// One multi handle and its timer.
    fileprivate final class Shard {
        let multi: Multi
        let watch: DescriptorWatch
        /// Time of the next call that libcurl requested; nil without one.
        var nextTimerTime: LoopTime?
        /// Number of running transfers at the last update of the pool's total.
        var runningCount = 0

        init(multi: Multi, watch: DescriptorWatch) {
            self.multi = multi
            self.watch = watch
        }
    }

    private let loop: EventLoop
    private let makeWatch: DescriptorWatch.Maker
    private var spread = TransferSpread(slots: 1)
    /// Indexed by shard number. A shard is created on first use.
    private var shards: [Shard?] = []
    private var finishedTransfers: [FinishedTransfer] = []

    /// Number of running transfers.
    private(set) var runningTransferCount = 0

    /// - Parameter makeWatch: Called once for each multi handle.
    init(loop: EventLoop, makeWatch: @escaping DescriptorWatch.Maker) {
        self.loop = loop
        self.makeWatch = makeWatch
    }

    /// Creates the first shard, so that the first transfer does not pay for it.
    func createFirstShard() throws(CurlError) { _ = try shard(number: 0) }

    /// Sets the number of slots for which later transfers are distributed, and the number for which descriptors
    /// suffice.
    func setSlots(_ slots: Int, maximumSlots: Int) {
        spread = TransferSpread(slots: slots, maximumSlots: maximumSlots)
        for case let shard? in shards { shard.multi.setMaxConnections(spread.connectionsPerShard) }
    }

    /// Time of the next call that libcurl requested; nil without one.
    var nextTimerTime: LoopTime? {
        var first: LoopTime?
        for case let shard? in shards {
            if let due = shard.nextTimerTime { first = min(first ?? due, due) }
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
    ) throws(CurlError) -> RunningTransfer {
        let number = spread.shardIndex(host: host, port: port, running: runningTransferCount) { runningCount(in: $0) }
        let shard = try shard(number: number)
        let transfer = try shard.multi.start(request, sink: sink)
        collectEvents(of: shard)
        return RunningTransfer(shard: shard, transfer: transfer)
    }

    /// Ends a transfer immediately and closes its socket. `runPass` does not return it.
    func cancel(_ running: RunningTransfer) {
        finishedTransfers.removeAll { $0.transfer === running.transfer }
        running.shard.multi.cancel(running.transfer)
        collectEvents(of: running.shard)
    }

    /// Resumes a transfer whose sink postponed bytes.
    func resume(_ running: RunningTransfer) {
        running.shard.multi.resume(running.transfer)
        collectEvents(of: running.shard)
    }

    /// Runs due timers of libcurl and returns the transfers that have ended since the last call.
    func runPass() -> [FinishedTransfer] {
        for case let shard? in shards {
            guard let due = shard.nextTimerTime, due <= loop.now else { continue }
            shard.nextTimerTime = nil
            shard.multi.timerFired()
            collectEvents(of: shard)
        }
        defer { finishedTransfers.removeAll(keepingCapacity: true) }
        return finishedTransfers
    }

    private func runningCount(in number: Int) -> Int {
        number < shards.count ? shards[number]?.runningCount ?? 0 : 0
    }

    private func shard(number: Int) throws(CurlError) -> Shard {
        while shards.count <= number { shards.append(nil) }
        if let shard = shards[number] { return shard }
        let multi = try Multi.make(maxConnections: spread.connectionsPerShard)
        // The pool owns the shard, and the shard owns the watch that calls this closure.
        let watch = makeWatch { [unowned self] in handleReadiness($0, $1, shard: number) }
        let shard = Shard(multi: multi, watch: watch)
        shards[number] = shard
        return shard
    }

    private func handleReadiness(_ descriptor: Int32, _ readiness: EventLoop.Readiness, shard number: Int) {
        guard let shard = shards[number] else { return }
        shard.multi.descriptorReady(
            descriptor, reads: !readiness.isDisjoint(with: [.readable, .hangUp]),
            writes: readiness.contains(.writable), fails: readiness.contains(.error))
        collectEvents(of: shard)
    }

    private func collectEvents(of shard: Shard) {
        for interest in shard.multi.takeInterests() {
            shard.watch.setInterest(
                interest.descriptor, reads: interest.wantsReadability, writes: interest.wantsWritability,
                isNew: interest.isNewSocket)
        }
        switch shard.multi.takeTimeoutChange() {
        // A delay of 0 means this pass. A later time would make the loop sleep for a millisecond.
        case .after(0): shard.nextTimerTime = loop.now
        case .after(let milliseconds): shard.nextTimerTime = LoopTime.readClock().advanced(milliseconds: milliseconds)
        case .cancel: shard.nextTimerTime = nil
        case nil: break
        }
        finishedTransfers += shard.multi.takeFinishedTransfers()
        let running = shard.multi.runningCount
        runningTransferCount += running - shard.runningCount
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
    let shardCount: Int
    /// Maximum number of connections of each, including idle ones kept for reuse.
    let connectionsPerShard: Int

    /// - Parameters:
    ///   - slots: Maximum number of concurrent transfers, at least 1.
    ///   - maximumSlots: Number of transfers for which the descriptors suffice.
    init(slots: Int, maximumSlots: Int = .max / 2) {
        shardCount = max(1, slots / Limits.slotsPerShard)
        // At most two connections per slot in total. Each multi handle needs two descriptors for itself.
        connectionsPerShard =
            shardCount == 1 ? min(Limits.singleShardConnections, 2 * maximumSlots) : 2 * slots / shardCount - 2
    }

    /// Returns the number of the shard for a transfer to this server.
    ///
    /// - Parameters:
    ///   - running: Number of running transfers in all shards.
    ///   - shardRunning: Returns the number of running transfers in one shard.
    func shardIndex(host: String, port: UInt16, running: Int, shardRunning: (Int) -> Int) -> Int {
        guard running >= Limits.maximumShardTransfers else { return 0 }
        // FNV-1a.
        let seed = 0xcbf2_9ce4_8422_2325 ^ UInt64(port)
        let hash = host.utf8.reduce(seed &* 0x100_0000_01b3) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        let first = Int(hash % UInt64(shardCount))
        for step in 0..<shardCount {
            let shard = (first + step) % shardCount
            if shardRunning(shard) < Limits.maximumShardTransfers { return shard }
        }
        // All shards are full: the number of slots has shrunk while earlier transfers still run.
        return first
    }
}
