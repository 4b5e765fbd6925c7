internal import CLibCurl

/// Multi handle: many transfers on one thread, driven by descriptors and a timer that the owner watches
/// (curl_multi_socket_action).
///
/// The owner calls `descriptorReady` and `timerFired` on events. After each call to any method it takes
/// `takeInterests()`, `takeTimeoutChange()` and `takeFinishedTransfers()`, in this order. The cost of a transfer in
/// libcurl grows with the connections of its multi handle: use several handles beyond some hundreds of connections.
@safe public final class Multi {
    /// Maximum total length of a transfer's header lines in bytes, including all blocks and trailers.
    public static let headerBytesLimit = 64 * 1024

    /// Maximum number of transfers per connection; servers commonly allow 100 to 128.
    private static let streamsPerConnection = 100

    /// Maximum number of idle easy handles kept for reuse.
    private static let idleHandlesLimit = 256

    /// Idle timeout of connections in seconds while the number of connections is at its limit.
    public static let limitReachedIdleSeconds = 5

    /// Owned handle; cleaned up by `deinit`.
    private let pointer: UnsafeMutableRawPointer
    private let callbackEvents = CallbackEvents()
    private let limitReachedIdleSeconds: Int
    /// Running transfers by `EasyHandle.handleAddress`. Keeps the callbacks' contexts alive.
    private var runningTransfers: [UInt: Transfer] = [:]
    private var idleHandles: [EasyHandle] = []
    private var finishedTransfers: [FinishedTransfer] = []
    private var dnsCacheEntries = ResolvedNames()
    /// Number of calls of curl_multi_socket_action so far. Each runs all transfers added before it.
    private var socketActionCount: UInt64 = 0
    /// Whether libcurl is on the call stack, so that it must not be entered again.
    private var isInsideLibcurl = false

    /// Number of running transfers.
    public var runningCount: Int { runningTransfers.count }

    /// Number of open connections that have carried a request.
    public var connectionCount: Int { callbackEvents.sockets.count }

    private init(pointer: UnsafeMutableRawPointer, limitReachedIdleSeconds: Int) {
        unsafe self.pointer = unsafe pointer
        self.limitReachedIdleSeconds = limitReachedIdleSeconds
    }

    /// - Parameters:
    ///   - maxConnections: Number of connections, including active ones, from which on a new one is closed at the end
    ///     of its transfer. If it is less than the concurrent transfers plus useful idle connections, every request
    ///     opens a connection.
    ///   - limitReachedIdleSeconds: Idle timeout in seconds while there are so many connections.
    public static func make(
        maxConnections: Int, limitReachedIdleSeconds: Int = limitReachedIdleSeconds
    ) throws(CurlError) -> Multi {
        try Library.initialize()
        guard let pointer = unsafe curlshim_multi_init() else { throw CurlError(.handleCreationFailed) }
        let multi = unsafe Multi(pointer: pointer, limitReachedIdleSeconds: limitReachedIdleSeconds)
        let streams = unsafe curlshim_multi_set_long(pointer, CURLMOPT_MAX_CONCURRENT_STREAMS, streamsPerConnection)
        let callbacks = unsafe multi.callbackEvents.installCallbacks(on: pointer)
        for result in [streams, callbacks] where result != CURLM_OK {
            throw CurlError(.optionRefused, underlying: Int(result.rawValue))
        }
        multi.setMaxConnections(maxConnections)
        return multi
    }

    /// Whether HTTP/2 can be used, because the ends of its streams are detected. The first call takes a fraction of a
    /// millisecond.
    public static var speaksHTTP2: Bool { Library.detectsStreamEnds }

    /// Changes `maxConnections`; see `make(maxConnections:limitReachedIdleSeconds:)`.
    public func setMaxConnections(_ maxConnections: Int) {
        callbackEvents.connectionsLimit = maxConnections
        // Higher than the number of kept and active connections, so that libcurl itself never evicts one: see
        // `connectionsLimit`. libcurl accepts any number.
        _ = unsafe curlshim_multi_set_long(pointer, CURLMOPT_MAXCONNECTS, 4 * maxConnections)
    }

    deinit {
        for transfer in runningTransfers.values { unsafe curlshim_multi_remove_handle(pointer, transfer.easy.pointer) }
        unsafe curlshim_multi_cleanup(pointer)
    }

    // MARK: Transfers

    /// Starts a transfer. `takeTimeoutChange()` then returns an immediate timeout.
    ///
    /// - Throws: `CurlError` if libcurl rejects the request. An invalid URL is reported at the end of the transfer.
    public func start(_ request: TransferRequest, sink: any TransferSink) throws(CurlError) -> Transfer {
        let (lines, use) = dnsCacheEntries.addEntries(request.resolveEntries)
        do throws(CurlError) {
            let easy = if let used = idleHandles.popLast() { used } else { try EasyHandle.make() }
            let transfer = Transfer(
                easy: easy, events: callbackEvents, sink: sink, names: use, turn: socketActionCount,
                allowsHTTP2: request.version == .http2OverTLS && !request.requiresExclusiveConnection)
            try easy.configure(request)
            if !lines.isEmpty { try easy.setResolveEntries(lines) }
            if callbackEvents.isAtConnectionLimit { easy.closeIdleConnections(afterSeconds: limitReachedIdleSeconds) }
            try transfer.installCallbacks()
            let added = callLibcurl { unsafe curlshim_multi_add_handle(pointer, easy.pointer) }
            guard added == CURLM_OK else { throw CurlError(.transferNotAdded, underlying: Int(added.rawValue)) }
            runningTransfers[easy.handleAddress] = transfer
            return transfer
        } catch {
            dnsCacheEntries.removeEntries(use, wasRun: false)
            throw error
        }
    }

    /// Cancels a transfer. Its sink is not called again. Unless the response was complete, its socket is closed on
    /// return. A stream of an HTTP/2 connection with other transfers is reset with their next frame instead. No effect
    /// on a completed transfer.
    public func cancel(_ transfer: Transfer) {
        finishedTransfers.removeAll { $0.transfer === transfer }
        guard runningTransfers[transfer.easy.handleAddress] === transfer else { return }
        remove(transfer, isReusable: false)
    }

    /// Resumes a transfer whose sink postponed bytes. The sink receives them again before this returns. No effect on a
    /// completed transfer.
    public func resume(_ transfer: Transfer) {
        guard runningTransfers[transfer.easy.handleAddress] === transfer else { return }
        let resumed = callLibcurl { unsafe curlshim_easy_pause(transfer.easy.pointer, Int32(CURLPAUSE_CONT)) }
        // Fails only if the sink refuses the bytes, which nothing else would report.
        if resumed != CURLE_OK { finish(transfer, transfer.makeResult(code: resumed)) }
    }

    // MARK: Events

    /// Handles a descriptor that is readable, writable or failed.
    public func descriptorReady(_ descriptor: Int32, reads: Bool, writes: Bool, fails: Bool) {
        var events: Int32 = 0
        if reads { events |= CURL_CSELECT_IN }
        if writes { events |= CURL_CSELECT_OUT }
        if fails { events |= CURL_CSELECT_ERR }
        handleActivity(descriptor, events)
    }

    /// Handles the timeout that `takeTimeoutChange()` returned. An early call has no effect.
    public func timerFired() {
        handleActivity(CURL_SOCKET_TIMEOUT, 0)
    }

    // MARK: Results for the owner

    /// Returns changed interests, at most one per descriptor.
    public func takeInterests() -> [DescriptorInterest] {
        let interests = callbackEvents.takeInterests()
        for interest in interests where !interest.isUnwatched {
            runningTransfers[interest.owner]?.recordWatchedSocket(interest)
        }
        return interests
    }

    /// Returns when to call `timerFired()`; nil if unchanged.
    public func takeTimeoutChange() -> TimeoutChange? {
        defer { callbackEvents.timeoutChange = nil }
        return callbackEvents.timeoutChange
    }

    /// Returns completed transfers in the order of completion.
    public func takeFinishedTransfers() -> [FinishedTransfer] {
        guard !finishedTransfers.isEmpty else { return [] }
        defer { finishedTransfers.removeAll(keepingCapacity: true) }
        return finishedTransfers
    }

    // MARK: Helpers

    private func handleActivity(_ descriptor: Int32, _ events: Int32) {
        var count: Int32 = 0
        socketActionCount += 1
        let result = callLibcurl { unsafe curlshim_multi_socket_action(pointer, descriptor, events, &count) }
        precondition(result == CURLM_OK, "curl_multi_socket_action: \(result.rawValue)")
        collectFinishedTransfers()
        tryNextAddresses()
    }

    /// Makes libcurl try the next address of each transfer with a failed attempt.
    ///
    /// Before version 8.4, libcurl waits for an event or an unrelated timer, which may take half of the connection
    /// timeout.
    private func tryNextAddresses() {
        for address in callbackEvents.takeTransfersWithFailedAttempts() {
            guard let transfer = runningTransfers[address], transfer.isConnecting else { continue }
            callLibcurl { transfer.easy.continueAtNextTimer() }
        }
    }

    private func collectFinishedTransfers() {
        var left: Int32 = 0
        while let message = unsafe curlshim_multi_info_read(pointer, &left) {
            let address = UInt(bitPattern: unsafe message.pointee.easy_handle)
            guard unsafe message.pointee.msg == CURLMSG_DONE, let transfer = runningTransfers[address] else { continue }
            // Removing the handle invalidates the message.
            let code = unsafe curlshim_message_result(message)
            if transfer.hasStaleConnection || transfer.failedByUnusableConnection(code) {
                restart(transfer)
            } else {
                finish(transfer, transfer.makeResult(code: code))
            }
        }
    }

    /// Restarts a transfer on a new connection. Nothing of its request was sent, or the request is repeatable.
    private func restart(_ transfer: Transfer) {
        let easy = transfer.easy
        let removed = callLibcurl { unsafe curlshim_multi_remove_handle(pointer, easy.pointer) }
        transfer.prepareForRestart()
        let added = callLibcurl { unsafe curlshim_multi_add_handle(pointer, easy.pointer) }
        precondition(
            removed == CURLM_OK && added == CURLM_OK, "a transfer begins anew: \(removed.rawValue), \(added.rawValue)")
    }

    private func finish(_ transfer: Transfer, _ result: TransferResult) {
        guard let sink = transfer.sink else { preconditionFailure("a running transfer has a sink") }
        // libcurl 7.88 leaves a buffer in the handle if others still use the connection, and then rejects options.
        remove(transfer, isReusable: result.failure == nil && !transfer.usesHTTP2)
        finishedTransfers.append(FinishedTransfer(transfer: transfer, sink: sink, result: result))
    }

    /// - Parameter isReusable: Whether another transfer can use its handle.
    private func remove(_ transfer: Transfer, isReusable: Bool) {
        let easy = transfer.easy
        let removed = callLibcurl { unsafe curlshim_multi_remove_handle(pointer, easy.pointer) }
        precondition(removed == CURLM_OK, "curl_multi_remove_handle: \(removed.rawValue)")
        transfer.sink = nil
        transfer.removeTLSSession()
        runningTransfers[easy.handleAddress] = nil
        dnsCacheEntries.removeEntries(transfer.dnsCacheEntries, wasRun: transfer.socketActionCount < socketActionCount)
        // Other handles are not reused: after a transfer that never had a connection, libcurl 7.88 leaves a buffer and
        // a list of addresses, and then rejects options.
        guard isReusable, idleHandles.count < Self.idleHandlesLimit else { return }
        easy.clearState()
        idleHandles.append(easy)
    }

    private func callLibcurl<Code>(_ call: () -> Code) -> Code {
        precondition(!isInsideLibcurl, "libcurl entered from one of its callbacks")
        isInsideLibcurl = true
        defer { isInsideLibcurl = false }
        return call()
    }
}

/// Change of the events for which the owner of a multi handle watches a descriptor.
///
/// The descriptor number may name a new socket: libcurl may close a socket without notice and open another one within
/// the same call. The owner must therefore tolerate that a forgotten descriptor is already closed, and register again
/// where `isNewSocket` is true.
public struct DescriptorInterest: Hashable, Sendable {
    /// Open socket.
    public let descriptor: Int32
    /// `EasyHandle.handleAddress` of a transfer that uses the socket.
    let owner: UInt
    public let wantsReadability: Bool
    public let wantsWritability: Bool

    /// Whether a socket was opened under this number since the last report of the number, so that earlier registrations
    /// are void. Otherwise it is the same socket, even if the owner has forgotten it meanwhile.
    public let isNewSocket: Bool

    /// Whether the owner stops watching the descriptor.
    public var isUnwatched: Bool { !wantsReadability && !wantsWritability }
}

/// Latest state of libcurl's single timer.
public enum TimeoutChange: Hashable, Sendable {
    /// The timer is off.
    case cancel
    /// `Multi.timerFired()` is due after this many milliseconds; 0 means immediately.
    case after(milliseconds: Int)
}

/// Completed transfer, as returned by `Multi.takeFinishedTransfers()`.
public struct FinishedTransfer {
    public let transfer: Transfer
    /// Sink that received the bytes.
    public let sink: any TransferSink
    public let result: TransferResult
}

/// Loading and global initialization of libcurl.
enum Library {
    /// Reason why libcurl cannot be used; nil after successful initialization. The initializer of a static runs once,
    /// however many threads call.
    private static let failure: CurlError? = {
        if let sentence = unsafe curlshim_load(alertArrived) {
            return CurlError(.libraryNotLoaded, detail: unsafe String(cString: sentence))
        }
        let result = curlshim_global_init(Int(CURL_GLOBAL_DEFAULT))
        return result == CURLE_OK ? nil : CurlError(.handleCreationFailed, underlying: Int(result.rawValue))
    }()

    /// Whether the ends of HTTP/2 streams are detected, as determined by a request to a canned response. Otherwise
    /// libcurl reports a reset stream as complete, and HTTP/2 is not used.
    static let detectsStreamEnds: Bool = unsafe failure == nil && curlshim_follow_streams(streamFrameArrived) != 0

    /// Loads and initializes libcurl on the first call. Must precede all other calls.
    static func initialize() throws(CurlError) {
        if let failure { throw failure }
    }
}
