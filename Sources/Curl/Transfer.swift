internal import CLibCurl
internal import Glibc

/// A transfer that a `Multi` runs: a name for its owner to hold, and what libcurl calls back with.
public final class Transfer {
    /// Nil once the transfer has ended: nothing of it reaches the sink after that.
    var sink: (any TransferSink)?
    let easy: EasyHandle
    /// Its entries in the DNS cache of its multi handle.
    let names: ResolvedNames.Use
    /// The number of calls of curl_multi_socket_action before it was added.
    let turn: UInt64
    /// Those of its multi handle.
    private let notes: MultiNotes
    /// The socket that libcurl last had watched for it; nil before.
    private var descriptor: Int32?
    /// The header bytes seen so far, in all blocks.
    private var headerBytes = 0
    /// What we stopped it for; libcurl only says that a callback failed.
    private(set) var stoppedFor: TransferFailure?
    /// Whether an address was not admitted, and whether a connection to another was begun.
    private var hasRefusedAddress = false
    private var hasOpenedSocket = false
    /// Whether it connects to an address, up to the request.
    private(set) var isConnecting = false
    /// Whether it waited for TLS or a proxy: for bytes before the request.
    private var isPreparing = false
    /// The sockets that were opened since a request last went out.
    private var newSockets: [Int32] = []
    /// Whether the connection that libcurl chose cannot be used again: nothing was sent on it, and another is needed.
    private(set) var hasStaleConnection = false
    /// Whether it had such a connection, and began anew with one of its own.
    private var hasBegunAnew = false
    /// The number of the TLS session that the request went out on; nil without TLS.
    private var session: UInt?
    /// Whether it is a stream of an HTTP/2 connection; nil for a request that allows HTTP/1.1 only.
    private var isStream: Bool?
    /// Whether a frame of its stream has arrived.
    private var hasStreamArrived = false
    /// Bytes of body in the frames of its stream.
    private var streamBytes = 0
    /// Whether a frame has ended its stream.
    private var hasStreamEnded = false

    init(
        easy: EasyHandle, notes: MultiNotes, sink: any TransferSink, names: ResolvedNames.Use, turn: UInt64,
        allowsHTTP2: Bool
    ) {
        self.easy = easy
        isStream = allowsHTTP2 ? false : nil
        self.names = names
        self.turn = turn
        self.notes = notes
        self.sink = sink
    }

    /// Installs the callbacks. The transfer must be kept alive until it has left the multi handle.
    func attach() throws(CurlError) {
        try unsafe easy.setCallbacks(
            header: headerArrived, body: bodyArrived, context: Unmanaged.passUnretained(self).toOpaque())
        try unsafe easy.setAddressCallbacks(
            open: connectionPlanned, request: requestPlanned, context: Unmanaged.passUnretained(self).toOpaque())
        try easy.setCloseCallback(notes)
        if isStream != nil { try unsafe easy.setOwner(Unmanaged.passUnretained(self).toOpaque()) }
    }

    /// Whether its response comes by HTTP/2.
    var usesHTTP2: Bool { isStream ?? false }

    /// Milliseconds since its connection last received bytes, parts of lines included; nil without a connection of its
    /// own, and once it has ended.
    public var silentMilliseconds: Int? {
        guard sink != nil, !usesHTTP2, let descriptor else { return nil }
        let milliseconds = curlshim_socket_silence(descriptor)
        return milliseconds < 0 ? nil : milliseconds
    }

    /// Whether a connection to this address may be opened.
    func mayConnect(to address: String) -> Bool {
        let isAdmitted = sink?.admits(address: address) ?? false
        if isAdmitted { hasOpenedSocket = true } else { hasRefusedAddress = true }
        return isAdmitted
    }

    /// Notes the socket that is watched for it.
    func watched(_ interest: DescriptorInterest) {
        descriptor = interest.descriptor
        if interest.reads, isConnecting { isPreparing = true }
    }

    /// Notes the socket for a connection to one address; negative if there is none.
    func opened(_ descriptor: Int32) {
        isConnecting = true
        notes.noteOpened(descriptor, by: easy.address)
        if descriptor >= 0 { newSockets.append(descriptor) }
    }

    /// Prepares for a start with a connection of its own.
    func beginAnew() {
        hasStaleConnection = false
        hasBegunAnew = true
        easy.forbidReuse()
    }

    /// Whether the request may go out on a connection to this address, which may have been opened for another.
    func maySend(to address: String) -> Bool {
        guard let sink, stoppedFor == nil else { return false }
        if !sink.admits(address: address) { stoppedFor = .addressRefused }
        return stoppedFor == nil
    }

    /// Whether the request may go out on the connection with these ends.
    ///
    /// Bytes that wait on a used HTTP/1.1 connection are no answer to this request: they came before it. libcurl before
    /// 8.0 takes them for one. An HTTP/2 server may send frames at any time.
    func maySend(over ends: SocketTable.Ends, ownPort: Int32) -> Bool {
        if isStream != nil { beginStream() }
        isConnecting = false
        if !newSockets.isEmpty {
            notes.noteConnected(newSockets)
            notes.sockets.note(opened: newSockets, ownPort: ownPort, ends: ends)
            newSockets.removeAll(keepingCapacity: true)
            if notes.sockets.count > notes.connectionsLimit { easy.closeAfterTransfer() }
        } else if !usesHTTP2, !hasBegunAnew {
            hasStaleConnection = !(notes.sockets.isQuiet(ends) && !easy.hasPendingInput)
        }
        if !hasStaleConnection, !usesHTTP2 { followSession() }
        return !hasStaleConnection
    }

    /// Prepares for a response by the version that client and server agreed on.
    ///
    /// The connection of a stream is kept only if the stream ends: libcurl 7.88 announces a cancelled stream with its next
    /// frame, and until then the server goes on sending.
    private func beginStream() {
        isStream = easy.speaksHTTP2
        streamBytes = 0
        hasStreamArrived = false
        hasStreamEnded = false
        easy.setKeeping(!usesHTTP2)
    }

    /// Whether its request failed because the HTTP/2 connection, which was used before, is of no use any more, as after a
    /// GOAWAY. Only GET and HEAD use HTTP/2, and they can be repeated: RFC 9110, section 9.2.2.
    func wasConnectionOver(_ code: CURLcode) -> Bool {
        guard usesHTTP2, !hasStreamArrived, !hasBegunAnew, stoppedFor == nil else { return false }
        switch code {
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_HTTP2, CURLE_HTTP2_STREAM, CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE:
            return easy.long(CURLINFO_NUM_CONNECTS) == 0
        default: return false
        }
    }

    private func followSession() {
        leaveSession()
        session = easy.followSession(notes)
    }

    /// Forgets the TLS session. - Returns: whether its peer has said close_notify, or there was none.
    @discardableResult func leaveSession() -> Bool {
        guard let session else { return true }
        self.session = nil
        return notes.sessions.leave(session)
    }

    /// A frame of its stream has arrived.
    func streamArrived(bytes: Int, isEnd: Bool) {
        hasStreamArrived = true
        streamBytes += bytes
        guard isEnd else { return }
        hasStreamEnded = true
        easy.setKeeping(true)
    }

    func received(headerLine line: Span<UInt8>) -> Bool {
        guard let sink, stoppedFor == nil else { return false }
        headerBytes += line.count
        if headerBytes > Multi.headerBytesLimit {
            stoppedFor = .headerTooLarge
        } else if !sink.received(headerLine: line) {
            stoppedFor = .aborted
        }
        return stoppedFor == nil
    }

    func received(body: Span<UInt8>) -> Reception {
        guard let sink, stoppedFor == nil else { return .refused }
        let reception = sink.received(body: body)
        if reception == .refused { stoppedFor = .aborted }
        return reception
    }

    /// How it ended; read before the handle leaves the multi.
    func result(_ code: CURLcode) -> TransferResult {
        let (status, connectsMade) = (easy.long(CURLINFO_RESPONSE_CODE), easy.long(CURLINFO_NUM_CONNECTS))
        let hasGoodbye = leaveSession()
        let lacksGoodbye = usesHTTP2 ? !hasStreamEnded : !hasGoodbye
        // libcurl 7.88 can drop bytes that arrive with the end of their stream.
        let hasLost = usesHTTP2 && hasStreamEnded && streamBytes != easy.offset(CURLINFO_SIZE_DOWNLOAD_T)
        if code == CURLE_OK, stoppedFor == nil, !hasLost {
            return TransferResult(
                failure: nil, status: status, osError: 0, connectsMade: connectsMade, usedHTTP2: usesHTTP2,
                lacksGoodbye: lacksGoodbye, detail: "")
        }
        let osError = Int32(truncatingIfNeeded: easy.long(CURLINFO_OS_ERRNO))
        // libcurl counts at least a microsecond for a step that was reached, but connecting as one with the handshake.
        let stage: TransferFailure.Stage =
            status > 0
            ? .answered
            : easy.time(CURLINFO_PRETRANSFER_TIME_T) > .zero
                ? .connected : isPreparing ? .preparing : .connecting
        let sentence = easy.errorSentence
        let isRefused = code == CURLE_COULDNT_CONNECT && hasRefusedAddress && !hasOpenedSocket
        let failure =
            stoppedFor
            ?? (isRefused
                ? .addressRefused : TransferFailure(code, osError: osError, stage: stage, sentence: sentence))
            ?? .reset
        return TransferResult(
            failure: failure, status: status, osError: osError, connectsMade: connectsMade, usedHTTP2: usesHTTP2,
            lacksGoodbye: lacksGoodbye, detail: sentence)
    }
}

private func connectionPlanned(
    context: UnsafeMutableRawPointer?, purpose: curlsocktype, address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let context = unsafe context, let address = unsafe address else { return CURL_SOCKET_BAD }
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    guard unsafe curlshim_address_text(address, &text) != 0 else { return CURL_SOCKET_BAD }
    let numeric = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    let descriptor = transfer.mayConnect(to: numeric) ? unsafe curlshim_open_socket(address) : CURL_SOCKET_BAD
    transfer.opened(descriptor)
    return descriptor
}

private func requestPlanned(
    context: UnsafeMutableRawPointer?, address: UnsafeMutablePointer<CChar>?, ownAddress: UnsafeMutablePointer<CChar>?,
    port: Int32, ownPort: Int32
) -> Int32 {
    guard let context = unsafe context, let address = unsafe address, let ownAddress = unsafe ownAddress else {
        return CURL_PREREQFUNC_ABORT
    }
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    let ends = unsafe SocketTable.Ends(address: address, port: port, ownAddress: ownAddress, ownPort: ownPort)
    let maySend =
        transfer.maySend(to: unsafe String(cString: address)) && transfer.maySend(over: ends, ownPort: ownPort)
    return maySend ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// For `curlshim_follow_streams`: a frame of a transfer's stream has arrived.
func streamNoted(handle: UnsafeMutableRawPointer?, bytes: Int, isEnd: Int32) {
    guard let handle = unsafe handle, let owner = unsafe curlshim_easy_private(handle) else { return }
    unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue().streamArrived(bytes: bytes, isEnd: isEnd != 0)
}

private func headerArrived(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    unsafe arrived(bytes, size * count, context) { $0.received(headerLine: $1) ? .taken : .refused }
}

private func bodyArrived(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    // libcurl reports an empty body by a call with no bytes.
    size * count == 0 ? 0 : unsafe arrived(bytes, size * count, context) { $0.received(body: $1) }
}

/// - Returns: the value that libcurl expects of its data callbacks: all of `length`, or the code that pauses or aborts.
private func arrived(
    _ bytes: UnsafeMutablePointer<CChar>?, _ length: Int, _ context: UnsafeMutableRawPointer?,
    take: (Transfer, Span<UInt8>) -> Reception
) -> Int {
    guard let context = unsafe context else { return Int(CURL_WRITEFUNC_ERROR) }
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    let buffer = unsafe UnsafeRawBufferPointer(start: bytes, count: length).assumingMemoryBound(to: UInt8.self)
    switch take(transfer, unsafe buffer.span) {
    case .taken: return length
    case .postponed: return Int(CURL_WRITEFUNC_PAUSE)
    case .refused: return Int(CURL_WRITEFUNC_ERROR)
    }
}
