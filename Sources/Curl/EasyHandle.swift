internal import CLibCurl

/// Easy handle with the data that libcurl reads through it during a transfer. Reused after `clearState` or `reset`.
@safe final class EasyHandle {
    /// Seconds after which libcurl closes an idle connection: its default.
    private static let defaultIdleSeconds = 118

    /// Owned handle; cleaned up by `deinit`, after it has left its multi handle.
    let pointer: UnsafeMutableRawPointer
    /// Buffer for libcurl's error message; CURL_ERROR_SIZE bytes.
    private let errorText: UnsafeMutablePointer<CChar>
    /// Parsed URL of a request with lasting options. Owned; cleaned up by `deinit`.
    private let parsedURL: OpaquePointer
    /// Options that the next request may inherit; nil if it must start without options.
    var reusableOptions: TransferRequest.ReusableOptions?
    /// Header lines of requests without fields of their own, valid with `reusableOptions`.
    private var defaultHeaderLines = StringList()
    /// Header lines of one request, instead of `defaultHeaderLines`.
    private var headerFields = StringList()
    private var resolveEntries = StringList()
    /// Whether the next transfer must open a new connection.
    private var requiresNewConnection = false
    /// Whether a shorter idle timeout or the closing of its connection is set, until the next `clearState` or `reset`.
    private var hasConnectionLimitOptions = false
    /// Whether the connection of the running transfer is closed at its end.
    private var closesAfterTransfer = false
    /// Whether the callbacks for transfers are installed, until the next `reset`. Each transfer sets their context.
    private var hasTransferCallbacks = false
    /// Whether libcurl reports closed sockets, until the next `reset`.
    private var hasCloseCallback = false

    /// Address of `pointer`, as a key.
    var handleAddress: UInt { UInt(bitPattern: unsafe pointer) }

    private init(pointer: UnsafeMutableRawPointer, parsedURL: OpaquePointer) {
        unsafe self.pointer = unsafe pointer
        unsafe self.parsedURL = unsafe parsedURL
        unsafe errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    }

    static func make() throws(CurlError) -> EasyHandle {
        guard let pointer = unsafe curlshim_easy_init() else { throw CurlError(.handleCreationFailed) }
        guard let parsedURL = unsafe curlshim_url() else {
            unsafe curlshim_easy_cleanup(pointer)
            throw CurlError(.handleCreationFailed)
        }
        return unsafe EasyHandle(pointer: pointer, parsedURL: parsedURL)
    }

    deinit {
        unsafe curlshim_easy_cleanup(pointer)
        unsafe curlshim_url_cleanup(parsedURL)
        unsafe errorText.deallocate()
    }

    /// Clears the state of a successful transfer; all of it, unless its options last.
    func clearState() {
        guard reusableOptions != nil else { return reset() }
        // Cannot fail, since libcurl only stores a pointer.
        if !headerFields.isEmpty {
            _ = unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, defaultHeaderLines.head)
            headerFields = StringList()
        }
        if !resolveEntries.isEmpty {
            _ = unsafe curlshim_easy_set_list(pointer, CURLOPT_RESOLVE, nil)
            resolveEntries = StringList()
        }
        if requiresNewConnection {
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FRESH_CONNECT, 0)
            requiresNewConnection = false
        }
        if hasConnectionLimitOptions {
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, 0)
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_MAXAGE_CONN, Self.defaultIdleSeconds)
            closesAfterTransfer = false
            hasConnectionLimitOptions = false
        }
    }

    /// Makes the next transfer open a new connection, until the next `clearState` or `reset`.
    func requireNewConnection() {
        // Cannot fail: libcurl only stores the value.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FRESH_CONNECT, 1)
        requiresNewConnection = true
    }

    /// Makes libcurl close the connection of the running transfer at its end, until the next `clearState` or `reset`.
    func closeAfterTransfer() {
        // Cannot fail: libcurl only stores the value.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, 1)
        closesAfterTransfer = true
        hasConnectionLimitOptions = true
    }

    /// Makes the next transfer close connections that were idle for longer, until the next `clearState` or `reset`.
    /// libcurl checks for them once per second.
    func closeIdleConnections(afterSeconds seconds: Int) {
        // Cannot fail: libcurl only stores the value.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_MAXAGE_CONN, seconds)
        hasConnectionLimitOptions = true
    }

    /// Sets whether the connection of the running transfer is kept at its end, unless `closeAfterTransfer` was called.
    /// A connection used by other transfers is kept in any case.
    func setKeepsConnection(_ isKept: Bool) {
        // Cannot fail: libcurl only stores the value.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, isKept && !closesAfterTransfer ? 0 : 1)
    }

    /// Makes libcurl continue a transfer at the next `timerFired`, without an event.
    func continueAtNextTimer() {
        // A change of the pause state has this effect. Fails for a transfer without a connection.
        _ = unsafe curlshim_easy_pause(pointer, CURLPAUSE_SEND)
        _ = unsafe curlshim_easy_pause(pointer, CURLPAUSE_CONT)
    }

    /// Clears all options of the last transfer. Connections belong to the multi handle and stay.
    func reset() {
        unsafe curlshim_easy_reset(pointer)
        reusableOptions = nil
        defaultHeaderLines = StringList()
        headerFields = StringList()
        resolveEntries = StringList()
        requiresNewConnection = false
        closesAfterTransfer = false
        hasConnectionLimitOptions = false
        hasTransferCallbacks = false
        hasCloseCallback = false
        unsafe errorText.pointee = 0
    }

    // MARK: Options

    func setOption(_ option: CURLoption, to value: Int) throws(CurlError) {
        try throwOnFailure(unsafe curlshim_easy_set_long(pointer, option, value))
    }

    /// Sets a string option; libcurl copies the string.
    func setOption(_ option: CURLoption, to value: String) throws(CurlError) {
        try throwOnFailure(unsafe curlshim_easy_set_string(pointer, option, value))
    }

    /// Sets a blob option; libcurl copies the bytes.
    func setOption(_ option: CURLoption, to bytes: [UInt8]) throws(CurlError) {
        try throwOnFailure(
            unsafe bytes.withUnsafeBytes { unsafe curlshim_easy_set_blob(pointer, option, $0.baseAddress, $0.count) })
    }

    /// Removes the default of a string option.
    func clearOption(_ option: CURLoption) throws(CurlError) {
        try throwOnFailure(unsafe curlshim_easy_set_string(pointer, option, nil))
    }

    /// Sets a duration in whole milliseconds. Rounds up, so that a short duration does not become "none", and caps it
    /// at libcurl's maximum.
    func setOption(_ option: CURLoption, milliseconds duration: Duration) throws(CurlError) {
        try setOption(option, to: Int(min(max(duration / .milliseconds(1), 0).rounded(.up), Double(Int32.max))))
    }

    /// Sets a URL without user information and brackets, until the next `reset`.
    ///
    /// The URL is parsed in advance, because libcurl formats a URL that it parses itself again, byte by byte. An
    /// invalid URL is set as a string, so that libcurl reports the error at the end of the transfer.
    func setPlainURL(_ url: String) throws(CurlError) {
        let flags = UInt32(CURLU_PATH_AS_IS)
        let isTaken = unsafe curlshim_url_set(parsedURL, CURLUPART_URL, url, flags) == CURLUE_OK
        try throwOnFailure(unsafe curlshim_easy_set_url(pointer, isTaken ? parsedURL : nil))
        if !isTaken { try setOption(CURLOPT_URL, to: url) }
    }

    /// Sets the request body; libcurl copies it.
    func setRequestBody(_ bytes: [UInt8]) throws(CurlError) {
        try setOption(CURLOPT_POST, to: 1)
        try throwOnFailure(
            unsafe curlshim_easy_set_offset(pointer, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(bytes.count)))
        // An empty array may have no address, and NULL would select a read callback.
        let content = bytes.isEmpty ? [0] : bytes
        let result = unsafe content.withUnsafeBytes { buffer in
            let start = unsafe buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
            return unsafe curlshim_easy_set_string(pointer, CURLOPT_COPYPOSTFIELDS, start)
        }
        try throwOnFailure(result)
    }

    /// Sets header lines for each request, until the next `reset`.
    func setDefaultHeaderFields(_ lines: [[UInt8]]) throws(CurlError) {
        defaultHeaderLines = StringList(lines)
        try throwOnFailure(unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, defaultHeaderLines.head))
    }

    /// Sets header lines instead of the usual ones, until the next `clearState`.
    func setHeaderFields(_ lines: [[UInt8]]) throws(CurlError) {
        headerFields = StringList(lines)
        try throwOnFailure(unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, headerFields.head))
    }

    /// Sets changes of the DNS cache; see `ResolvedNames`.
    func setResolveEntries(_ lines: [String]) throws(CurlError) {
        resolveEntries = StringList(lines.map { Array($0.utf8) })
        try throwOnFailure(unsafe curlshim_easy_set_list(pointer, CURLOPT_RESOLVE, resolveEntries.head))
    }

    /// Installs the callbacks for header lines, body, a connection and a request. `context` must outlive the transfer.
    func setCallbacks(
        header: @escaping curl_write_callback, body: @escaping curl_write_callback,
        open: @escaping curl_opensocket_callback, request: @escaping curl_prereq_callback,
        context: UnsafeMutableRawPointer
    ) throws(CurlError) {
        if !hasTransferCallbacks {
            try throwOnFailure(unsafe curlshim_easy_set_data_callback(pointer, CURLOPT_HEADERFUNCTION, header))
            try throwOnFailure(unsafe curlshim_easy_set_data_callback(pointer, CURLOPT_WRITEFUNCTION, body))
            try throwOnFailure(unsafe curlshim_easy_set_opensocket_callback(pointer, open))
            try throwOnFailure(unsafe curlshim_easy_set_prereq_callback(pointer, request))
            try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_ERRORBUFFER, errorText))
            hasTransferCallbacks = true
        }
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_HEADERDATA, context))
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_WRITEDATA, context))
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_OPENSOCKETDATA, context))
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_PREREQDATA, context))
    }

    /// Installs the callback for closed sockets. `events` must outlive the connections.
    func setCloseCallback(_ events: CallbackEvents) throws(CurlError) {
        guard !hasCloseCallback else { return }
        try throwOnFailure(unsafe curlshim_easy_set_closesocket_callback(pointer, socketClosing))
        let context = unsafe Unmanaged.passUnretained(events).toOpaque()
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_CLOSESOCKETDATA, context))
        hasCloseCallback = true
    }

    /// TLS session of its connection; nil without TLS. Valid only during a request.
    var tlsSession: UnsafeMutableRawPointer? { unsafe curlshim_easy_tls(pointer) }

    /// Whether its connection's TLS session has buffered input.
    var hasPendingInput: Bool {
        guard let session = unsafe tlsSession else { return false }
        return unsafe curlshim_tls_has_pending(session) != 0
    }

    /// Reports the peer's alerts on its connection's TLS session to `events`, which must outlive the session.
    ///
    /// - Returns: Number of the session in `events`; nil without TLS.
    func recordTLSAlerts(in events: CallbackEvents) -> UInt? {
        guard let session = unsafe tlsSession else { return nil }
        let number = events.tlsSessions.addSession()
        unsafe curlshim_tls_follow(session, Unmanaged.passUnretained(events).toOpaque(), number)
        return number
    }

    /// Whether HTTP/2 was negotiated.
    var speaksHTTP2: Bool {
        guard let session = unsafe tlsSession else { return false }
        return unsafe curlshim_tls_speaks_http2(session) != 0
    }

    /// Sets the transfer that uses the handle. It must outlive the use.
    func setOwningTransfer(_ owner: UnsafeMutableRawPointer) throws(CurlError) {
        try throwOnFailure(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_PRIVATE, owner))
    }

    // MARK: Results

    func longInfo(_ info: CURLINFO) -> Int {
        var value = 0
        let result = unsafe curlshim_easy_get_long(pointer, info, &value)
        return result == CURLE_OK ? value : 0
    }

    func offsetInfo(_ info: CURLINFO) -> Int {
        var value: curl_off_t = 0
        let result = unsafe curlshim_easy_get_offset(pointer, info, &value)
        return result == CURLE_OK ? Int(value) : 0
    }

    /// Returns a time that libcurl reports in microseconds.
    func durationInfo(_ info: CURLINFO) -> Duration {
        var value: curl_off_t = 0
        let result = unsafe curlshim_easy_get_offset(pointer, info, &value)
        return result == CURLE_OK ? .microseconds(value) : .zero
    }

    /// libcurl's error message.
    var errorSentence: String { unsafe String(cString: errorText) }

    private func throwOnFailure(_ result: CURLcode) throws(CurlError) {
        guard result == CURLE_OK else { throw CurlError(.optionRefused, underlying: Int(result.rawValue)) }
    }
}

/// List of strings that libcurl reads during a transfer (struct curl_slist). Owned; freed by `deinit`.
@safe struct StringList: ~Copyable {
    private(set) var head: UnsafeMutablePointer<curl_slist>?

    /// Whether the list is empty.
    var isEmpty: Bool { unsafe head == nil }

    /// Copies `lines`, which must not contain NUL.
    init(_ lines: [[UInt8]] = []) {
        unsafe head = nil
        for line in lines { append(line) }
    }

    deinit {
        unsafe curlshim_slist_free_all(head)
    }

    /// Appends a copy of `line`. Traps if memory is exhausted.
    private mutating func append(_ line: [UInt8]) {
        let text = line.map { CChar(bitPattern: $0) } + [0]
        guard let grown = unsafe curlshim_slist_append(head, text) else {
            preconditionFailure("curl_slist_append failed")
        }
        unsafe head = grown
    }
}
