internal import CLibCurl
internal import Glibc

/// Transfer run by a `Multi`: a handle for its owner, and the context of libcurl's callbacks.
public final class Transfer {
    /// Sink; nil after the transfer has ended, so that it is not called again.
    var sink: (any TransferSink)?
    let easy: EasyHandle
    /// Entries in the DNS cache of its multi handle.
    let dnsCacheEntries: ResolvedNames.TransferEntries
    /// Number of calls of curl_multi_socket_action before it was added.
    let socketActionCount: UInt64
    /// Notes of its multi handle.
    private let events: CallbackEvents
    /// Socket last watched for it; nil before the first one.
    private var descriptor: Int32?
    /// Bytes of header lines received so far, in all blocks, and of the responses to CONNECT before them.
    private var headerBytes = 0
    private var proxyHeaderBytes = 0
    /// Reason for which a callback stopped it. libcurl reports only that a callback failed.
    private(set) var stopReason: TransferFailure?
    /// Whether an address was denied, and whether a connection to another one was started.
    private var hasRefusedAddress = false
    private var hasOpenedSocket = false
    /// Whether it is connecting; false once a request is sent.
    private(set) var isConnecting = false
    /// Whether it waited for input before the request: for TLS or a proxy.
    private var isPreparingConnection = false
    /// Sockets opened since the last request was sent.
    private var socketsSinceLastRequest: [Int32] = []
    /// Whether the connection chosen by libcurl is unusable. Nothing was sent on it, and another one is needed.
    private(set) var hasStaleConnection = false
    /// Whether it was restarted on a new connection.
    private var hasRestarted = false
    /// Number of times that the request was sent.
    private var requestsSent = 0
    /// Value of `Retry-After` in the proxy's response to CONNECT.
    private var proxyRetryAfter: String?
    /// Number of the TLS session that carried the request; nil without TLS.
    private var tlsSessionNumber: UInt?
    /// Whether it is a stream of an HTTP/2 connection; nil if the request permits only HTTP/1.1.
    private var usesHTTP2Stream: Bool?
    /// Whether a frame of its stream has arrived.
    private var hasReceivedStreamFrame = false
    /// Number of body bytes in the frames of its stream.
    private var streamBytes = 0
    /// Whether a frame has ended its stream.
    private var hasStreamEnded = false

    init(
        easy: EasyHandle, events: CallbackEvents, sink: any TransferSink, names: ResolvedNames.TransferEntries,
        turn: UInt64,
        allowsHTTP2: Bool
    ) {
        self.easy = easy
        usesHTTP2Stream = allowsHTTP2 ? false : nil
        self.dnsCacheEntries = names
        self.socketActionCount = turn
        self.events = events
        self.sink = sink
    }

    /// Installs the callbacks. The transfer must stay alive until it has left the multi handle.
    func installCallbacks() throws(CurlError) {
        try unsafe easy.setCallbacks(
            header: headerArrived, body: bodyArrived, open: willConnect, request: willSendRequest,
            context: Unmanaged.passUnretained(self).toOpaque())
        try easy.setCloseCallback(events)
        if usesHTTP2Stream != nil { try unsafe easy.setOwningTransfer(Unmanaged.passUnretained(self).toOpaque()) }
    }

    /// Whether its response arrives over HTTP/2.
    var usesHTTP2: Bool { usesHTTP2Stream ?? false }

    /// Milliseconds since its connection last received bytes, even parts of lines. Nil without an exclusive connection,
    /// and after the transfer has ended.
    public var millisecondsSinceLastInput: Int? {
        guard sink != nil, !usesHTTP2, let descriptor else { return nil }
        let milliseconds = curlshim_socket_silence(descriptor)
        return milliseconds < 0 ? nil : milliseconds
    }

    /// Returns whether a connection to this address may be opened.
    func mayConnect(to address: String) -> Bool {
        let isAdmitted = sink?.admits(address: address) ?? false
        if isAdmitted { hasOpenedSocket = true } else { hasRefusedAddress = true }
        return isAdmitted
    }

    /// Records the socket watched for it.
    func recordWatchedSocket(_ interest: DescriptorInterest) {
        descriptor = interest.descriptor
        if interest.wantsReadability, isConnecting { isPreparingConnection = true }
    }

    /// Records the socket of a connection attempt; negative if none could be opened.
    func recordOpenedSocket(_ descriptor: Int32) {
        isConnecting = true
        events.recordOpenedSocket(descriptor, by: easy.handleAddress)
        if descriptor >= 0 { socketsSinceLastRequest.append(descriptor) }
    }

    /// Prepares for a restart on a new connection.
    func prepareForRestart() {
        hasStaleConnection = false
        hasRestarted = true
        easy.requireNewConnection()
    }

    /// Returns whether the request may be sent on a connection to this address. The connection may have been opened for
    /// another transfer.
    func maySend(to address: String) -> Bool {
        guard let sink, stopReason == nil else { return false }
        if !sink.admits(address: address) { stopReason = .addressRefused }
        return stopReason == nil
    }

    /// Returns whether the request may be sent on the connection with these endpoints.
    ///
    /// Input on an idle HTTP/1.1 connection arrived before the request, so it is not its response. libcurl before 8.0
    /// accepts it as one. An HTTP/2 server may send frames at any time.
    ///
    /// libcurl repeats a request up to five times, as long as reused connections end without a response. A failed
    /// repetition should not be repeated (RFC 9110, section 9.2.2), so the first one uses a new connection. libcurl
    /// also repeats a request over HTTP/1.1 after HTTP_1_1_REQUIRED, even in the middle of a response.
    func maySend(over ends: SocketTable.EndpointPair, ownPort: Int32) -> Bool {
        guard headerBytes == 0 else {
            stopReason = .reset
            return false
        }
        if usesHTTP2Stream != nil { beginStream() }
        isConnecting = false
        if !socketsSinceLastRequest.isEmpty {
            events.recordConnected(socketsSinceLastRequest, by: easy.handleAddress)
            events.sockets.recordConnection(sockets: socketsSinceLastRequest, ownPort: ownPort, endpoints: ends)
            socketsSinceLastRequest.removeAll(keepingCapacity: true)
            if events.sockets.count > events.connectionsLimit { easy.closeAfterTransfer() }
        } else if !hasRestarted {
            hasStaleConnection =
                requestsSent > 0
                || !usesHTTP2 && !(events.sockets.isIdleConnectionUsable(ends) && !easy.hasPendingInput)
        }
        guard !hasStaleConnection else { return false }
        requestsSent += 1
        if !usesHTTP2 { recordTLSAlerts() }
        return true
    }

    /// Prepares for a response over the negotiated version.
    ///
    /// A stream's connection is kept only if the stream ends. libcurl 7.88 sends the reset of a cancelled stream with
    /// its next frame, and until then the server continues to send.
    private func beginStream() {
        usesHTTP2Stream = easy.speaksHTTP2
        streamBytes = 0
        hasReceivedStreamFrame = false
        hasStreamEnded = false
        easy.setKeepsConnection(!usesHTTP2)
    }

    /// Returns whether the request failed because its connection is no longer usable: a reused one after an RST, or one
    /// of HTTP/2 after a GOAWAY. Only idempotent requests use those: RFC 9110, section 9.2.2.
    func failedByUnusableConnection(_ code: CURLcode) -> Bool {
        guard usesHTTP2 ? !hasReceivedStreamFrame : headerBytes == 0, !hasRestarted, stopReason == nil else {
            return false
        }
        switch code {
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_HTTP2, CURLE_HTTP2_STREAM, CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE:
            return usesHTTP2 || easy.longInfo(CURLINFO_NUM_CONNECTS) == 0
        default: return false
        }
    }

    private func recordTLSAlerts() {
        removeTLSSession()
        tlsSessionNumber = easy.recordTLSAlerts(in: events)
    }

    /// Removes the TLS session. - Returns: The last alert of its peer; nil without an alert or a session.
    @discardableResult func removeTLSSession() -> Int? {
        guard let tlsSessionNumber else { return nil }
        self.tlsSessionNumber = nil
        return events.tlsSessions.removeSession(tlsSessionNumber)
    }

    /// Records a frame of its stream.
    func recordStreamFrame(bytes: Int, isEnd: Bool) {
        hasReceivedStreamFrame = true
        streamBytes += bytes
        guard isEnd else { return }
        hasStreamEnded = true
        easy.setKeepsConnection(true)
    }

    func received(headerLine line: Span<UInt8>) -> Bool {
        guard let sink, stopReason == nil else { return false }
        if isConnecting {
            proxyHeaderBytes += line.count
            recordProxyRetryAfter(line)
        } else {
            headerBytes += line.count
        }
        if max(headerBytes, proxyHeaderBytes) > Multi.headerBytesLimit {
            stopReason = .headerTooLarge
        } else if isConnecting {
            return true
        } else if !sink.received(headerLine: line) {
            stopReason = .aborted
        }
        return stopReason == nil
    }

    /// Records `Retry-After` of a response to CONNECT, the only header lines before the request.
    private func recordProxyRetryAfter(_ line: Span<UInt8>) {
        let text = unsafe line.withUnsafeBufferPointer { unsafe String(decoding: $0.prefix(256), as: UTF8.self) }
        guard let colon = text.firstIndex(of: ":"), text[..<colon].lowercased() == "retry-after" else { return }
        proxyRetryAfter = String(text[text.index(after: colon)...].drop(while: \.isWhitespace).prefix { !$0.isNewline })
    }

    func received(body: Span<UInt8>) -> Reception {
        guard let sink, stopReason == nil else { return .refused }
        let reception = sink.received(body: body)
        if reception == .refused { stopReason = .aborted }
        return reception
    }

    /// Returns its result. Must be called before the handle leaves the multi handle.
    func makeResult(code: CURLcode) -> TransferResult {
        let (status, connectsMade) = (easy.longInfo(CURLINFO_RESPONSE_CODE), easy.longInfo(CURLINFO_NUM_CONNECTS))
        let repeats = max(0, requestsSent - 1)
        let hasSession = tlsSessionNumber != nil
        let alert = removeTLSSession()
        let lacksGoodbye = usesHTTP2 ? !hasStreamEnded : hasSession && alert != 0
        // libcurl 7.88 can lose bytes that arrive with the end of their stream.
        let hasLost = usesHTTP2 && hasStreamEnded && streamBytes != easy.offsetInfo(CURLINFO_SIZE_DOWNLOAD_T)
        if code == CURLE_OK, stopReason == nil, !hasLost {
            return TransferResult(
                failure: nil, status: status, osError: 0, openedConnectionCount: connectsMade,
                repeatedRequestCount: repeats, usedHTTP2: usesHTTP2, lacksExplicitEnd: lacksGoodbye, detail: "")
        }
        let details = failureDetails(status: status, alert: alert)
        let isRefused = code == CURLE_COULDNT_CONNECT && hasRefusedAddress && !hasOpenedSocket
        let failure = stopReason ?? (isRefused ? .addressRefused : TransferFailure(code, details)) ?? .reset
        return TransferResult(
            failure: failure, status: status, osError: details.osError, openedConnectionCount: connectsMade,
            repeatedRequestCount: repeats, usedHTTP2: usesHTTP2, lacksExplicitEnd: lacksGoodbye,
            wasConnected: details.stage >= .connected, proxyStatus: details.proxyStatus,
            proxyRetryAfter: proxyRetryAfter, detail: details.libcurlMessage)
    }

    private func failureDetails(status: Int, alert: Int?) -> TransferFailure.Details {
        // libcurl reports at least one microsecond for a stage that was reached, but combines connecting and the
        // handshake.
        let stage: TransferFailure.Stage =
            status > 0
            ? .receivedStatus
            : easy.durationInfo(CURLINFO_PRETRANSFER_TIME_T) > .zero
                ? .connected : isPreparingConnection ? .preparingConnection : .connecting
        let (server, proxy) = (easy.longInfo(CURLINFO_SSL_VERIFYRESULT), easy.longInfo(CURLINFO_PROXY_SSL_VERIFYRESULT))
        return TransferFailure.Details(
            osError: Int32(truncatingIfNeeded: easy.longInfo(CURLINFO_OS_ERRNO)), stage: stage,
            libcurlMessage: easy.errorSentence, alert: alert, verifyResult: server != 0 ? server : proxy,
            proxyStatus: easy.longInfo(CURLINFO_HTTP_CONNECTCODE),
            proxyError: CURLproxycode(UInt32(truncatingIfNeeded: easy.longInfo(CURLINFO_PROXY_ERROR))))
    }
}

private func willConnect(
    context: UnsafeMutableRawPointer?, purpose: curlsocktype, address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let context = unsafe context, let address = unsafe address else { return CURL_SOCKET_BAD }
    var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
    guard unsafe curlshim_address_text(address, &text) != 0 else { return CURL_SOCKET_BAD }
    let numeric = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    let descriptor = transfer.mayConnect(to: numeric) ? unsafe curlshim_open_socket(address) : CURL_SOCKET_BAD
    transfer.recordOpenedSocket(descriptor)
    return descriptor
}

private func willSendRequest(
    context: UnsafeMutableRawPointer?, address: UnsafeMutablePointer<CChar>?, ownAddress: UnsafeMutablePointer<CChar>?,
    port: Int32, ownPort: Int32
) -> Int32 {
    guard let context = unsafe context, let address = unsafe address, let ownAddress = unsafe ownAddress else {
        return CURL_PREREQFUNC_ABORT
    }
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
    let ends = unsafe SocketTable.EndpointPair(address: address, port: port, ownAddress: ownAddress, ownPort: ownPort)
    let maySend =
        transfer.maySend(to: unsafe String(cString: address)) && transfer.maySend(over: ends, ownPort: ownPort)
    return maySend ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// Callback for `curlshim_follow_streams`: a frame of a transfer's stream has arrived.
func streamFrameArrived(handle: UnsafeMutableRawPointer?, bytes: Int, isEnd: Int32) {
    guard let handle = unsafe handle, let owner = unsafe curlshim_easy_private(handle) else { return }
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(owner).takeUnretainedValue()
    transfer.recordStreamFrame(bytes: bytes, isEnd: isEnd != 0)
}

private func headerArrived(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    unsafe handleReceivedData(bytes: bytes, length: size * count, context: context) {
        $0.received(headerLine: $1) ? .accepted : .refused
    }
}

private func bodyArrived(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    // libcurl reports an empty body by a call without bytes.
    guard size * count > 0 else { return 0 }
    return unsafe handleReceivedData(bytes: bytes, length: size * count, context: context) { $0.received(body: $1) }
}

/// - Returns: Value for libcurl's data callbacks: `length` for success, or the code that pauses or aborts.
private func handleReceivedData(
    bytes: UnsafeMutablePointer<CChar>?, length: Int, context: UnsafeMutableRawPointer?,
    take: (Transfer, Span<UInt8>) -> Reception
) -> Int {
    guard let context = unsafe context else { return Int(CURL_WRITEFUNC_ERROR) }
    let buffer = unsafe UnsafeRawBufferPointer(start: bytes, count: length).assumingMemoryBound(to: UInt8.self)
    // Without a retain: the multi handle keeps the transfer alive.
    let transfer = unsafe Unmanaged<Transfer>.fromOpaque(context)
    switch unsafe transfer._withUnsafeGuaranteedRef({ unsafe take($0, buffer.span) }) {
    case .accepted: return length
    case .paused: return Int(CURL_WRITEFUNC_PAUSE)
    case .refused: return Int(CURL_WRITEFUNC_ERROR)
    }
}

/// Receiver of a transfer's data.
///
/// The methods are called from inside libcurl: they record data and return. They must not use the multi handle.
public protocol TransferSink: AnyObject {
    /// Called before each connection is opened, and again before the request is sent on a new or reused one.
    ///
    /// - Parameter address: Numeric address of the server or proxy, without brackets and zone.
    /// - Returns: false to deny the address: libcurl tries the next one, or the transfer fails.
    func admits(address: String) -> Bool

    /// Receives one line of a header block with its line end: a status line, a field, the empty line that ends the
    /// block, or a trailer field after the body. A transfer can have several blocks (1xx, CONNECT).
    ///
    /// - Returns: false to abort the transfer.
    func received(headerLine: Span<UInt8>) -> Bool

    /// Receives bytes of the body, without transfer coding and with content coding; never empty.
    func received(body: Span<UInt8>) -> Reception
}

/// Result of offering body bytes to a sink.
public enum Reception: Hashable, Sendable {
    case accepted
    /// No byte was accepted, and the transfer pauses. `Multi.resume(_:)` offers the same bytes again.
    case paused
    /// Aborts the transfer.
    case refused
}

/// Result of a transfer.
public struct TransferResult: Hashable, Sendable {
    /// Failure; nil for a complete response of any status.
    public let failure: TransferFailure?
    /// Status code of the last status line; 0 without one.
    public let status: Int
    /// System error number of the last failed connection attempt; otherwise 0, and 0 for a complete response.
    public let osError: Int32
    /// Number of connections opened for it: 0 if one was reused.
    public let openedConnectionCount: Int
    /// Number of times that the request was sent again, because a connection ended without a response or the server
    /// did not process it.
    public let repeatedRequestCount: Int
    /// Whether the response arrived over HTTP/2.
    public let usedHTTP2: Bool
    /// Whether the response lacks an explicit end: close_notify for HTTP/1.1 over TLS, END_STREAM for HTTP/2. A body
    /// without a length may then be truncated: RFC 9112, section 9.8.
    public let lacksExplicitEnd: Bool
    /// Whether the connection was ready for the request; false also for a complete response.
    public var wasConnected = false
    /// Status of a proxy's response to CONNECT; 0 without one.
    public var proxyStatus = 0
    /// `Retry-After` of that response; nil without it.
    public var proxyRetryAfter: String?
    /// libcurl's error message; empty without one. It may contain text from the peer, so escape it.
    public let detail: String
}
