internal import CLibCurl

/// Many transfers on one thread, driven by descriptors and a timer that the owner watches (curl_multi_socket_action).
///
/// The owner calls `descriptorReady` and `timerFired` as the world says, and after each call to anything here takes
/// `takeInterests()`, `takeTimeout()` and `takeFinished()`, in this order. Each transfer costs libcurl time in
/// proportion to the connections of its multi handle: beyond some hundreds spread them over several.
@safe public final class Multi {
    /// The most bytes of header lines a transfer may receive, all blocks and trailers together.
    public static let headerBytesLimit = 64 * 1024

    /// Transfers that share a connection at most; servers commonly allow 100 to 128.
    private static let streamsPerConnection = 100

    /// How many handles are kept for transfers to come.
    private static let idleHandlesLimit = 256

    /// Seconds after which an idle connection makes room for others while the connections are as many as they may be.
    public static let crowdedIdleSeconds = 5

    /// Owned; cleaned up by `deinit`.
    private let pointer: UnsafeMutableRawPointer
    private let notes = MultiNotes()
    private let crowdedIdleSeconds: Int
    /// By `EasyHandle.address`. Keeps what the callbacks point to alive.
    private var running: [UInt: Transfer] = [:]
    private var idle: [EasyHandle] = []
    private var finished: [FinishedTransfer] = []
    private var names = ResolvedNames()
    /// Calls of curl_multi_socket_action so far. Each runs all transfers that were added before it.
    private var turns: UInt64 = 0
    /// Whether libcurl is on the stack: it may not be entered again.
    private var isInside = false

    /// How many transfers run.
    public var runningCount: Int { running.count }

    /// Number of open connections that have carried a request.
    public var connectionCount: Int { notes.sockets.count }

    private init(pointer: UnsafeMutableRawPointer, crowdedIdleSeconds: Int) {
        unsafe self.pointer = unsafe pointer
        self.crowdedIdleSeconds = crowdedIdleSeconds
    }

    /// - Parameters:
    ///   - maxConnections: Number of connections from which on a new one is closed at the end of its transfer, those in
    ///     use included. With fewer than the transfers at once plus the idle ones worth keeping, every request opens a
    ///     connection.
    ///   - crowdedIdleSeconds: Seconds after which an idle connection makes room while there are so many.
    public static func make(
        maxConnections: Int, crowdedIdleSeconds: Int = crowdedIdleSeconds
    ) throws(CurlError) -> Multi {
        try Library.initialize()
        guard let pointer = unsafe curlshim_multi_init() else { throw CurlError(.noHandle) }
        let multi = unsafe Multi(pointer: pointer, crowdedIdleSeconds: crowdedIdleSeconds)
        let streams = unsafe curlshim_multi_set_long(pointer, CURLMOPT_MAX_CONCURRENT_STREAMS, streamsPerConnection)
        let callbacks = unsafe multi.notes.attach(to: pointer)
        for result in [streams, callbacks] where result != CURLM_OK {
            throw CurlError(.optionRefused, underlying: Int(result.rawValue))
        }
        multi.keepConnections(maxConnections)
        return multi
    }

    /// Whether HTTP/2 can be used: its streams' ends are detected. The first call takes a fraction of a millisecond.
    public static var speaksHTTP2: Bool { Library.followsStreams }

    /// Changes `maxConnections`; see `make(maxConnections:crowdedIdleSeconds:)`.
    public func keepConnections(_ maxConnections: Int) {
        notes.connectionsLimit = maxConnections
        // More than the connections that are kept and those of running transfers, so that libcurl itself evicts none:
        // `connectionsLimit` says why. It takes any number.
        _ = unsafe curlshim_multi_set_long(pointer, CURLMOPT_MAXCONNECTS, 4 * maxConnections)
    }

    deinit {
        for transfer in running.values { unsafe curlshim_multi_remove_handle(pointer, transfer.easy.pointer) }
        unsafe curlshim_multi_cleanup(pointer)
    }

    // MARK: Transfers

    /// Starts a transfer: `takeTimeout()` then says "at once".
    ///
    /// - Throws: when the request cannot be told to libcurl. What is wrong with a URL shows at the end of the transfer.
    public func start(_ request: TransferRequest, sink: any TransferSink) throws(CurlError) -> Transfer {
        let (lines, use) = names.begin(request.resolve)
        do throws(CurlError) {
            let easy = if let used = idle.popLast() { used } else { try EasyHandle.make() }
            let transfer = Transfer(
                easy: easy, notes: notes, sink: sink, names: use, turn: turns,
                allowsHTTP2: request.version == .http2OverTLS)
            try easy.configure(request)
            if !lines.isEmpty { try easy.setResolve(lines) }
            if notes.isCrowded { easy.closeIdleConnections(afterSeconds: crowdedIdleSeconds) }
            try transfer.attach()
            let added = inside { unsafe curlshim_multi_add_handle(pointer, easy.pointer) }
            guard added == CURLM_OK else { throw CurlError(.notAdded, underlying: Int(added.rawValue)) }
            running[easy.address] = transfer
            return transfer
        } catch {
            names.end(use, wasRun: false)
            throw error
        }
    }

    /// Ends a transfer now. Its sink hears nothing more. Unless the response was whole, its socket is closed when this
    /// returns; if others use the same HTTP/2 connection, its stream is reset with their next frame instead. Does nothing
    /// for one that has ended.
    public func cancel(_ transfer: Transfer) {
        finished.removeAll { $0.transfer === transfer }
        guard running[transfer.easy.address] === transfer else { return }
        remove(transfer, isReusable: false)
    }

    /// Continues a transfer whose sink postponed bytes: it gets them again before this returns. Does nothing for one
    /// that has ended.
    public func resume(_ transfer: Transfer) {
        guard running[transfer.easy.address] === transfer else { return }
        let resumed = inside { unsafe curlshim_easy_pause(transfer.easy.pointer, Int32(CURLPAUSE_CONT)) }
        // Only the sink's refusal makes it fail, and nothing else would tell of that.
        if resumed != CURLE_OK { finish(transfer, transfer.result(resumed)) }
    }

    // MARK: Events

    /// The descriptor can be read or written, or has failed.
    public func descriptorReady(_ descriptor: Int32, reads: Bool, writes: Bool, fails: Bool) {
        var events: Int32 = 0
        if reads { events |= CURL_CSELECT_IN }
        if writes { events |= CURL_CSELECT_OUT }
        if fails { events |= CURL_CSELECT_ERR }
        act(descriptor, events)
    }

    /// The time that `takeTimeout()` told is there. Harmless when called early.
    public func timerFired() {
        act(CURL_SOCKET_TIMEOUT, 0)
    }

    // MARK: What the owner takes

    /// The descriptors to watch otherwise than before, each once.
    public func takeInterests() -> [DescriptorInterest] {
        let interests = notes.takeInterests()
        for interest in interests where !interest.isForgotten {
            running[interest.owner]?.watched(interest)
        }
        return interests
    }

    /// When to call `timerFired()`; nil if nothing changed.
    public func takeTimeout() -> TimeoutChange? {
        defer { notes.timeout = nil }
        return notes.timeout
    }

    /// The transfers that ended, in the order in which they did.
    public func takeFinished() -> [FinishedTransfer] {
        guard !finished.isEmpty else { return [] }
        defer { finished.removeAll(keepingCapacity: true) }
        return finished
    }

    // MARK: Helpers

    private func act(_ descriptor: Int32, _ events: Int32) {
        var count: Int32 = 0
        turns += 1
        let result = inside { unsafe curlshim_multi_socket_action(pointer, descriptor, events, &count) }
        precondition(result == CURLM_OK, "curl_multi_socket_action: \(result.rawValue)")
        collectFinished()
        tryNextAddresses()
    }

    /// Has libcurl connect to the next address of each transfer for which one has failed.
    ///
    /// Before version 8.4 it waits for an event or a timer of another purpose, which can be half of the time to connect.
    private func tryNextAddresses() {
        for address in notes.takeFailedAttempts() {
            guard let transfer = running[address], transfer.isConnecting else { continue }
            inside { transfer.easy.expire() }
        }
    }

    private func collectFinished() {
        var left: Int32 = 0
        while let message = unsafe curlshim_multi_info_read(pointer, &left) {
            let address = UInt(bitPattern: unsafe message.pointee.easy_handle)
            guard unsafe message.pointee.msg == CURLMSG_DONE, let transfer = running[address] else { continue }
            // The message is gone once its handle is removed.
            let code = unsafe curlshim_message_result(message)
            if transfer.hasStaleConnection || transfer.wasConnectionOver(code) {
                startAnew(transfer)
            } else {
                finish(transfer, transfer.result(code))
            }
        }
    }

    /// Starts a transfer once more, with a connection of its own. Nothing of its request was sent, or it can be repeated.
    private func startAnew(_ transfer: Transfer) {
        let easy = transfer.easy
        let removed = inside { unsafe curlshim_multi_remove_handle(pointer, easy.pointer) }
        transfer.beginAnew()
        let added = inside { unsafe curlshim_multi_add_handle(pointer, easy.pointer) }
        precondition(
            removed == CURLM_OK && added == CURLM_OK, "a transfer begins anew: \(removed.rawValue), \(added.rawValue)")
    }

    private func finish(_ transfer: Transfer, _ result: TransferResult) {
        guard let sink = transfer.sink else { preconditionFailure("a running transfer has a sink") }
        // libcurl 7.88 leaves a buffer in the handle if others still use the connection, and then refuses options.
        remove(transfer, isReusable: result.failure == nil && !transfer.usesHTTP2)
        finished.append(FinishedTransfer(transfer: transfer, sink: sink, result: result))
    }

    /// - Parameter isReusable: whether another transfer can use its handle.
    private func remove(_ transfer: Transfer, isReusable: Bool) {
        let easy = transfer.easy
        let removed = inside { unsafe curlshim_multi_remove_handle(pointer, easy.pointer) }
        precondition(removed == CURLM_OK, "curl_multi_remove_handle: \(removed.rawValue)")
        transfer.sink = nil
        transfer.leaveSession()
        running[easy.address] = nil
        names.end(transfer.names, wasRun: transfer.turn < turns)
        // What another transfer leaves behind is not looked into: one that never had a connection leaves a buffer and a
        // list of addresses in libcurl 7.88, which then refuses options.
        guard isReusable, idle.count < Self.idleHandlesLimit else { return }
        easy.rest()
        idle.append(easy)
    }

    private func inside<Code>(_ call: () -> Code) -> Code {
        precondition(!isInside, "libcurl entered from one of its callbacks")
        isInside = true
        defer { isInside = false }
        return call()
    }
}
