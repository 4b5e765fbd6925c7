internal import Curl
internal import EarshotLoop

/// The transfers that run, spread over several multi handles as `TransferSpread` says.
final class TransferPool {
    /// A transfer and where it runs.
    struct Running {
        fileprivate let shard: Shard
        fileprivate let transfer: Transfer

        /// Milliseconds since its connection last received bytes; nil without a connection.
        var silentMilliseconds: Int? { transfer.silentMilliseconds }
    }

    /// One multi handle and its timer.
    fileprivate final class Shard {
        let multi: Multi
        let watch: DescriptorWatch
        /// When libcurl wants to be called; nil if it does not.
        var due: LoopTime?
        /// How many of its transfers run, as was told last.
        var runningCount = 0

        init(_ multi: Multi, _ watch: DescriptorWatch) {
            self.multi = multi
            self.watch = watch
        }
    }

    private let loop: EventLoop
    private let makeWatch: DescriptorWatch.Maker
    private var spread = TransferSpread(slots: 1)
    /// By number; made when first needed.
    private var shards: [Shard?] = []
    private var finished: [FinishedTransfer] = []

    /// How many transfers run.
    private(set) var count = 0

    /// - Parameter makeWatch: called once for each multi handle.
    init(loop: EventLoop, makeWatch: @escaping DescriptorWatch.Maker) {
        self.loop = loop
        self.makeWatch = makeWatch
    }

    /// Has all that the first transfer needs made ready.
    func prepare() throws(CurlError) { _ = try shard(0) }

    /// Spreads transfers from now on as is good for so many.
    func makeRoom(slots: Int) {
        spread = TransferSpread(slots: slots)
        for case let shard? in shards { shard.multi.keepConnections(spread.connectionsPerShard) }
    }

    /// The next moment at which libcurl wants to be called.
    var due: LoopTime? {
        var first: LoopTime?
        for case let shard? in shards {
            if let due = shard.due { first = min(first ?? due, due) }
        }
        return first
    }

    /// Starts a transfer. Its end is handed out by `settle`.
    ///
    /// - Parameters:
    ///   - host: whom it connects to.
    ///   - port: the port there.
    func start(
        _ request: TransferRequest, host: String, port: UInt16, sink: any TransferSink
    ) throws(CurlError) -> Running {
        let number = spread.shard(host: host, port: port, running: count) { runningCount(in: $0) }
        let shard = try shard(number)
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

    /// Lets a transfer go on whose sink postponed bytes.
    func resume(_ running: Running) {
        running.shard.multi.resume(running.transfer)
        take(running.shard)
    }

    /// Does what is due, and hands out the transfers that ended.
    func settle() -> [FinishedTransfer] {
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
        // The watch, which calls it, goes with its shard, and that with the pool.
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
        // At once is this pass's time: a later one would make the loop sleep a millisecond.
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
