internal import Curl
internal import EarshotLoop

/// The transfers that run, spread over several multi handles: what libcurl does for one transfer takes time in
/// proportion to the connections of its multi handle.
final class TransferPool {
    /// A transfer and where it runs.
    struct Running {
        fileprivate let shard: Shard
        fileprivate let transfer: Transfer
    }

    /// One multi handle and its timer.
    fileprivate final class Shard {
        let multi: Multi
        let watch: DescriptorWatch
        /// When libcurl wants to be called; nil if it does not.
        var due: LoopTime?

        init(_ multi: Multi, _ watch: DescriptorWatch) {
            self.multi = multi
            self.watch = watch
        }
    }

    private let loop: EventLoop
    private let watch: () -> DescriptorWatch
    private var connectionsPerShard = Limits.connectionsPerShard
    /// By `index`; made when first needed.
    private var shards: [Int: Shard] = [:]
    private var finished: [FinishedTransfer] = []

    /// - Parameter watch: makes one for each multi handle.
    init(loop: EventLoop, watch: @escaping () -> DescriptorWatch) {
        self.loop = loop
        self.watch = watch
    }

    /// Makes the multi handles keep enough connections for so many transfers.
    func makeRoom(slots: Int) {
        connectionsPerShard = max(Limits.connectionsPerShard, 2 * slots / Limits.shards)
        for shard in shards.values { shard.multi.keepConnections(connectionsPerShard) }
    }

    /// How many transfers run.
    var count: Int { shards.values.reduce(0) { $0 + $1.multi.runningCount } }

    /// The next moment at which libcurl wants to be called.
    var due: LoopTime? { shards.values.compactMap(\.due).min() }

    /// Starts a transfer. Its end is handed out by `settle`.
    func start(_ request: TransferRequest, host: String, sink: any TransferSink) throws(CurlError) -> Running {
        let shard = try shard(Self.index(host: host, running: count))
        let transfer = try shard.multi.start(request, sink: sink)
        take(shard)
        return Running(shard: shard, transfer: transfer)
    }

    /// Ends a transfer now and closes its socket.
    func cancel(_ running: Running) {
        finished.removeAll { $0.transfer === running.transfer }
        running.shard.multi.cancel(running.transfer)
        take(running.shard)
    }

    /// Does what is due, and hands out the transfers that ended.
    func settle() -> [FinishedTransfer] {
        for shard in shards.values {
            guard let due = shard.due, due <= loop.now else { continue }
            shard.due = nil
            shard.multi.timerFired()
            take(shard)
        }
        defer { finished.removeAll(keepingCapacity: true) }
        return finished
    }

    /// The multi handle for a transfer to `host`: the first one while few run, then one by the host's name, so that
    /// its connections are found again.
    static func index(host: String, running: Int) -> Int {
        guard running >= Limits.firstShardTransfers else { return 0 }
        // FNV-1a.
        let hash = host.utf8.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return Int(hash % UInt64(Limits.shards))
    }

    private func shard(_ index: Int) throws(CurlError) -> Shard {
        if let shard = shards[index] { return shard }
        let multi = try Multi.make(maxConnections: connectionsPerShard)
        let shard = Shard(multi, watch())
        shards[index] = shard
        return shard
    }

    private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness, _ shard: Shard) {
        shard.multi.descriptorReady(
            descriptor, reads: !readiness.isDisjoint(with: [.readable, .hangUp]),
            writes: readiness.contains(.writable), fails: readiness.contains(.error))
        take(shard)
    }

    private func take(_ shard: Shard) {
        for interest in shard.multi.takeInterests() {
            let descriptor = interest.descriptor
            shard.watch.set(
                descriptor, reads: interest.reads, writes: interest.writes, isNew: interest.isNew
            ) {
                // The watch, which calls it, goes with its shard.
                [weak self, unowned shard] in self?.ready(descriptor, $0, shard)
            }
        }
        switch shard.multi.takeTimeout() {
        // At once is this pass's time: a later one would make the loop sleep a millisecond.
        case .after(0): shard.due = loop.now
        case .after(let milliseconds): shard.due = LoopTime.read().advanced(by: .milliseconds(milliseconds))
        case .cancel: shard.due = nil
        case nil: break
        }
        finished += shard.multi.takeFinished()
    }
}
