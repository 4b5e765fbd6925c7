internal import CLibCurl
internal import Glibc

/// Events recorded by the callbacks of a multi handle until the owner takes them, because a callback must not act.
final class CallbackEvents {
    /// Latest interest in each descriptor since the owner last took them.
    private var interests: [Int32: DescriptorInterest] = [:]
    /// Descriptors opened since the last report of their number.
    private var openedDescriptors: Set<Int32> = []
    /// Connecting transfers by the sockets that they opened, until a request is sent.
    private var connectingTransfers: [Int32: UInt] = [:]
    /// Transfers with a failed connection attempt since the last `takeTransfersWithFailedAttempts`.
    private var transfersWithFailedAttempts: Set<UInt> = []
    /// Latest timeout; nil if unchanged.
    var timeoutChange: TimeoutChange?
    /// Number of open connections from which on new ones are closed at the end of their transfers.
    ///
    /// libcurl 7.88 evicts a connection by scanning all hosts of its cache, and keeps an empty entry of the host. The
    /// cost of an eviction therefore grows with the number of hosts ever evicted. A connection closed at the end of a
    /// transfer or by the idle timeout leaves no entry.
    var connectionsLimit = 0
    /// Whether the number of connections has reached the limit.
    var isAtConnectionLimit: Bool { sockets.count >= connectionsLimit }
    /// Sockets of its connections.
    var sockets = SocketTable()
    /// TLS sessions of its transfers.
    var tlsSessions = TLSSessions()

    /// - Parameter owner: `EasyHandle.handleAddress` of a transfer that uses the socket.
    func recordInterest(descriptor: Int32, what: Int32, owner: UInt) {
        if what == CURL_POLL_REMOVE, !connectingTransfers.isEmpty,
            let transfer = connectingTransfers.removeValue(forKey: descriptor)
        {
            transfersWithFailedAttempts.insert(transfer)
        }
        interests[descriptor] = DescriptorInterest(
            descriptor: descriptor, owner: owner,
            wantsReadability: what == CURL_POLL_IN || what == CURL_POLL_INOUT,
            wantsWritability: what == CURL_POLL_OUT || what == CURL_POLL_INOUT,
            isNewSocket: openedDescriptors.contains(descriptor))
    }

    /// Records a socket opened for a connection attempt.
    ///
    /// - Parameters:
    ///   - descriptor: Socket; negative if none could be opened.
    ///   - transfer: `EasyHandle.handleAddress` of the connecting transfer.
    func recordOpenedSocket(_ descriptor: Int32, by transfer: UInt) {
        guard descriptor >= 0 else {
            transfersWithFailedAttempts.insert(transfer)
            return
        }
        openedDescriptors.insert(descriptor)
        // The number of a socket that failed at once may be reused at once.
        if let failed = connectingTransfers.updateValue(transfer, forKey: descriptor) {
            transfersWithFailedAttempts.insert(failed)
        }
    }

    /// Records that a transfer's connection with one of these sockets is ready for a request.
    ///
    /// - Parameter descriptors: All sockets that the transfer opened. Numbers of those that failed may meanwhile belong
    ///   to other connecting transfers.
    func recordConnected(_ descriptors: [Int32], by transfer: UInt) {
        for descriptor in descriptors where connectingTransfers[descriptor] == transfer {
            connectingTransfers[descriptor] = nil
        }
    }

    /// Returns the transfers with a failed connection attempt, without duplicates. Called before `takeInterests`.
    func takeTransfersWithFailedAttempts() -> Set<UInt> {
        guard !openedDescriptors.isEmpty || !transfersWithFailedAttempts.isEmpty else { return [] }
        // libcurl closes a socket that fails at once without reporting an interest in it.
        for descriptor in openedDescriptors where interests[descriptor] == nil {
            if let transfer = connectingTransfers.removeValue(forKey: descriptor) {
                transfersWithFailedAttempts.insert(transfer)
            }
        }
        defer { transfersWithFailedAttempts.removeAll(keepingCapacity: true) }
        return transfersWithFailedAttempts
    }

    /// Returns changed interests, at most one per descriptor.
    func takeInterests() -> [DescriptorInterest] {
        guard !interests.isEmpty else { return [] }
        defer { interests.removeAll(keepingCapacity: true) }
        if !openedDescriptors.isEmpty { openedDescriptors.subtract(interests.keys) }
        return Array(interests.values)
    }

    func recordTimeout(milliseconds: Int) {
        timeoutChange = milliseconds < 0 ? .cancel : .after(milliseconds: milliseconds)
    }

    /// Installs the callbacks on `multi`, which must be released before this object.
    func installCallbacks(on multi: UnsafeMutableRawPointer) -> CURLMcode {
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
    unsafe Unmanaged<CallbackEvents>.fromOpaque(context).takeUnretainedValue()
        .recordInterest(descriptor: descriptor, what: what, owner: UInt(bitPattern: easy))
    return 0
}

/// Closes a socket opened by `willConnect`. libcurl calls it for every connection, including cached ones.
func socketClosing(context: UnsafeMutableRawPointer?, descriptor: curl_socket_t) -> Int32 {
    if let context = unsafe context {
        unsafe Unmanaged<CallbackEvents>.fromOpaque(context).takeUnretainedValue().sockets.remove(descriptor)
    }
    return close(descriptor)
}

/// Callback for `curlshim_load`: the peer of a TLS session has sent an alert.
func alertArrived(context: UnsafeMutableRawPointer?, number: UInt, alert: Int32) {
    guard let context = unsafe context else { return }
    let events = unsafe Unmanaged<CallbackEvents>.fromOpaque(context).takeUnretainedValue()
    events.tlsSessions.recordAlert(Int(alert), ofSession: number)
}

private func timeoutChanged(
    multi: UnsafeMutableRawPointer?, milliseconds: Int, context: UnsafeMutableRawPointer?
) -> Int32 {
    guard let context = unsafe context else { return -1 }
    unsafe Unmanaged<CallbackEvents>.fromOpaque(context).takeUnretainedValue().recordTimeout(milliseconds: milliseconds)
    return 0
}

/// TLS sessions of running transfers, and the last alert of each one's peer: close_notify, without which libcurl
/// accepts the end of a connection as the end of a body all the same, or an error.
///
/// Numbers are never reused. The address of a session may be reused for another one before the end of the first
/// transfer is evaluated.
struct TLSSessions {
    /// The last alert by session number, -1 without one. At most one entry per running transfer.
    private var lastAlerts: [UInt: Int] = [:]
    private var lastSessionNumber: UInt = 0

    /// - Returns: Number of a new session.
    mutating func addSession() -> UInt {
        lastSessionNumber += 1
        lastAlerts[lastSessionNumber] = -1
        return lastSessionNumber
    }

    /// Records an alert of a session. Ignores a session whose transfer has ended.
    mutating func recordAlert(_ alert: Int, ofSession number: UInt) {
        if lastAlerts[number] != nil { lastAlerts[number] = alert }
    }

    /// Removes a session. - Returns: Its peer's last alert; nil without one.
    mutating func removeSession(_ number: UInt) -> Int? {
        lastAlerts.removeValue(forKey: number).flatMap { $0 < 0 ? nil : $0 }
    }
}
