internal import CLibCurl
internal import Glibc

/// What a multi handle's callbacks were told, kept until the owner asks: inside a callback nothing is done.
final class MultiNotes {
    /// The last word on each descriptor since the owner last took them.
    private var interests: [Int32: DescriptorInterest] = [:]
    /// Descriptors that were opened since the owner was last told of them.
    private var opened: Set<Int32> = []
    /// Transfers by the sockets that they opened, until a request goes out.
    private var connecting: [Int32: UInt] = [:]
    /// Transfers with an address that could not be connected to since the last `takeFailedAttempts`.
    private var failedAttempts: Set<UInt> = []
    /// The last word on the timer; nil if it did not change.
    var timeout: TimeoutChange?
    /// Number of open connections from which on new ones are closed at the end of their transfers.
    ///
    /// libcurl 7.88 evicts a connection by walking all hosts of its cache, and keeps the empty entry of the evicted host.
    /// So evictions take time in proportion to the hosts that were ever evicted. Connections closed at the end of a
    /// transfer, or because they were idle for too long, leave no entry.
    var connectionsLimit = 0
    /// Whether there are that many.
    var isCrowded: Bool { sockets.count >= connectionsLimit }
    /// The sockets of its connections.
    var sockets = SocketTable()
    /// The TLS sessions of its transfers.
    var sessions = SessionTable()

    /// - Parameter owner: `EasyHandle.address` of a transfer that the socket is for.
    func note(descriptor: Int32, what: Int32, owner: UInt) {
        if what == CURL_POLL_REMOVE, !connecting.isEmpty, let transfer = connecting.removeValue(forKey: descriptor) {
            failedAttempts.insert(transfer)
        }
        interests[descriptor] = DescriptorInterest(
            descriptor: descriptor, owner: owner,
            reads: what == CURL_POLL_IN || what == CURL_POLL_INOUT,
            writes: what == CURL_POLL_OUT || what == CURL_POLL_INOUT,
            isNew: opened.contains(descriptor))
    }

    /// Notes a socket for a connection to one address.
    ///
    /// - Parameters:
    ///   - descriptor: The socket; negative if none could be opened.
    ///   - transfer: `EasyHandle.address` of the transfer that connects.
    func noteOpened(_ descriptor: Int32, by transfer: UInt) {
        guard descriptor >= 0 else {
            failedAttempts.insert(transfer)
            return
        }
        opened.insert(descriptor)
        // The number of a socket that failed at once can be used again at once.
        if let failed = connecting.updateValue(transfer, forKey: descriptor) { failedAttempts.insert(failed) }
    }

    /// Notes that a connection of these sockets is ready for a request.
    func noteConnected(_ descriptors: [Int32]) {
        for descriptor in descriptors { connecting[descriptor] = nil }
    }

    /// Hands out the transfers with an address that could not be connected to, each once. Called before `takeInterests`.
    func takeFailedAttempts() -> Set<UInt> {
        guard !opened.isEmpty || !failedAttempts.isEmpty else { return [] }
        // libcurl closes a socket that fails at once before it has it watched.
        for descriptor in opened where interests[descriptor] == nil {
            if let transfer = connecting.removeValue(forKey: descriptor) { failedAttempts.insert(transfer) }
        }
        defer { failedAttempts.removeAll(keepingCapacity: true) }
        return failedAttempts
    }

    /// Hands out what changed, each descriptor once.
    func takeInterests() -> [DescriptorInterest] {
        guard !interests.isEmpty else { return [] }
        defer { interests.removeAll(keepingCapacity: true) }
        if !opened.isEmpty { opened.subtract(interests.keys) }
        return Array(interests.values)
    }

    func note(timeoutMilliseconds milliseconds: Int) {
        timeout = milliseconds < 0 ? .cancel : .after(milliseconds: milliseconds)
    }

    /// Installs the callbacks on `multi`, which must go before this object.
    func attach(to multi: UnsafeMutableRawPointer) -> CURLMcode {
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        let results = [
            unsafe curlshim_multi_set_socket_callback(multi, interestChanged),
            unsafe curlshim_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, context),
            unsafe curlshim_multi_set_timer_callback(multi, timeoutChanged),
            unsafe curlshim_multi_set_pointer(multi, CURLMOPT_TIMERDATA, context),
        ]
        return results.first { $0 != CURLM_OK } ?? CURLM_OK
    }
}

private func interestChanged(
    easy: UnsafeMutableRawPointer?, descriptor: curl_socket_t, what: Int32, context: UnsafeMutableRawPointer?,
    socketContext: UnsafeMutableRawPointer?
) -> Int32 {
    guard let context = unsafe context else { return -1 }
    unsafe Unmanaged<MultiNotes>.fromOpaque(context).takeUnretainedValue()
        .note(descriptor: descriptor, what: what, owner: UInt(bitPattern: easy))
    return 0
}

/// Closes a socket that `connectionPlanned` opened. libcurl calls it for each connection, also for those in its cache.
func socketClosing(context: UnsafeMutableRawPointer?, descriptor: curl_socket_t) -> Int32 {
    if let context = unsafe context {
        unsafe Unmanaged<MultiNotes>.fromOpaque(context).takeUnretainedValue().sockets.remove(descriptor)
    }
    return close(descriptor)
}

/// For `curlshim_load`: the peer of a TLS session has said close_notify.
func goodbyeSaid(context: UnsafeMutableRawPointer?, number: UInt) {
    guard let context = unsafe context else { return }
    let notes = unsafe Unmanaged<MultiNotes>.fromOpaque(context).takeUnretainedValue()
    notes.sessions.noteGoodbye(number)
}

private func timeoutChanged(
    multi: UnsafeMutableRawPointer?, milliseconds: Int, context: UnsafeMutableRawPointer?
) -> Int32 {
    guard let context = unsafe context else { return -1 }
    unsafe Unmanaged<MultiNotes>.fromOpaque(context).takeUnretainedValue().note(timeoutMilliseconds: milliseconds)
    return 0
}
