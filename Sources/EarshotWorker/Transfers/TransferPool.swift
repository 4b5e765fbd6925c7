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
        var due: LoopTime?
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
    var due: LoopTime? {
        var first: LoopTime?
        for case let shard? in shards {
            if let due = shard.due { first = min(first ?? due, due) }
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
            guard let due = shard.due, due <= loop.now else { continue }
            shard.due = nil
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
        case .after(0): shard.due = loop.now
        case .after(let milliseconds): shard.due = LoopTime.read().advanced(milliseconds: milliseconds)
        case .cancel: shard.due = nil
        case nil: break
        }
        finished += shard.multi.takeFinished()
        let running = shard.multi.runningCount
        count += running - shard.runningCount
        shard.runningCount = running
    }
}
