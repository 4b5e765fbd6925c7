internal import CLibCurl

/// One easy handle and what libcurl reads through it while a transfer runs. Used again after `rest` or `reset`.
@safe final class EasyHandle {
    /// Seconds after which libcurl closes an idle connection by itself.
    private static let usualIdleSeconds = 118

    /// Owned; cleaned up by `deinit`, by when it has left its multi handle.
    let pointer: UnsafeMutableRawPointer
    /// Where libcurl puts its sentence about a failure; CURL_ERROR_SIZE bytes.
    private let errorText: UnsafeMutablePointer<CChar>
    /// A URL taken apart, of a usual request. Owned; cleaned up by `deinit`.
    private let parsedURL: OpaquePointer
    /// The options that are set, if the next request may find them; nil if it has to begin with none.
    var lastingOptions: TransferRequest.LastingOptions?
    /// What goes with each request that has no fields of its own, as long as `lastingOptions` last.
    private var usualHeaderFields = StringList()
    /// Instead of those, for one request.
    private var headerFields = StringList()
    private var resolve = StringList()
    /// Whether the next transfer opens a connection though its request would allow to use one again.
    private var isReuseForbidden = false
    /// Whether its connections are closed sooner than usual, until the next `rest` or `reset`.
    private var isCrowded = false
    /// Whether the running transfer's connection closes at its end.
    private var closesAfterTransfer = false
    /// Whether libcurl reports closed sockets, until the next `reset`.
    private var hasCloseCallback = false

    /// What `pointer` points to, as a key.
    var address: UInt { UInt(bitPattern: unsafe pointer) }

    private init(pointer: UnsafeMutableRawPointer, parsedURL: OpaquePointer) {
        unsafe self.pointer = unsafe pointer
        unsafe self.parsedURL = unsafe parsedURL
        unsafe errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    }

    static func make() throws(CurlError) -> EasyHandle {
        guard let pointer = unsafe curlshim_easy_init() else { throw CurlError(.noHandle) }
        guard let parsedURL = unsafe curlshim_url() else {
            unsafe curlshim_easy_cleanup(pointer)
            throw CurlError(.noHandle)
        }
        return unsafe EasyHandle(pointer: pointer, parsedURL: parsedURL)
    }

    deinit {
        unsafe curlshim_easy_cleanup(pointer)
        unsafe curlshim_url_cleanup(parsedURL)
        unsafe errorText.deallocate()
    }

    /// Forgets what was the last transfer's alone, of one that ended well; all of it, unless its options may last.
    func rest() {
        guard lastingOptions != nil else { return reset() }
        // Neither fails, since libcurl only notes a pointer.
        if !headerFields.isEmpty {
            _ = unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, usualHeaderFields.head)
            headerFields = StringList()
        }
        if !resolve.isEmpty {
            _ = unsafe curlshim_easy_set_list(pointer, CURLOPT_RESOLVE, nil)
            resolve = StringList()
        }
        if isReuseForbidden {
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FRESH_CONNECT, 0)
            isReuseForbidden = false
        }
        if isCrowded {
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, 0)
            _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_MAXAGE_CONN, Self.usualIdleSeconds)
            closesAfterTransfer = false
            isCrowded = false
        }
    }

    /// Has the next transfer open a connection, until the next `rest` or `reset`.
    func forbidReuse() {
        // libcurl only notes it.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FRESH_CONNECT, 1)
        isReuseForbidden = true
    }

    /// Has the connection of the running transfer closed at its end, until the next `rest` or `reset`.
    func closeAfterTransfer() {
        // libcurl only notes it.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, 1)
        closesAfterTransfer = true
        isCrowded = true
    }

    /// Has the next transfer close connections that were idle for longer, until the next `rest` or `reset`. libcurl looks
    /// for them once a second.
    func closeIdleConnections(afterSeconds seconds: Int) {
        // libcurl only notes it.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_MAXAGE_CONN, seconds)
        isCrowded = true
    }

    /// Sets whether the connection of the running transfer outlives it, unless `closeAfterTransfer` was called. One that
    /// other transfers use does in any case.
    func setKeeping(_ isKept: Bool) {
        // libcurl only notes it.
        _ = unsafe curlshim_easy_set_long(pointer, CURLOPT_FORBID_REUSE, isKept && !closesAfterTransfer ? 0 : 1)
    }

    /// Has libcurl continue a transfer at the next `timerFired`, without an event.
    func expire() {
        // A change of what is paused does so. Fails for a transfer without a connection.
        _ = unsafe curlshim_easy_pause(pointer, CURLPAUSE_SEND)
        _ = unsafe curlshim_easy_pause(pointer, CURLPAUSE_CONT)
    }

    /// Forgets the last transfer's options; connections live in the multi handle and stay.
    func reset() {
        unsafe curlshim_easy_reset(pointer)
        lastingOptions = nil
        usualHeaderFields = StringList()
        headerFields = StringList()
        resolve = StringList()
        isReuseForbidden = false
        closesAfterTransfer = false
        isCrowded = false
        hasCloseCallback = false
        unsafe errorText.pointee = 0
    }

    // MARK: Options

    func set(_ option: CURLoption, _ value: Int) throws(CurlError) {
        try check(unsafe curlshim_easy_set_long(pointer, option, value))
    }

    /// libcurl copies the string.
    func set(_ option: CURLoption, _ value: String) throws(CurlError) {
        try check(unsafe curlshim_easy_set_string(pointer, option, value))
    }

    /// libcurl copies the bytes.
    func set(_ option: CURLoption, _ bytes: [UInt8]) throws(CurlError) {
        try check(
            unsafe bytes.withUnsafeBytes { unsafe curlshim_easy_set_blob(pointer, option, $0.baseAddress, $0.count) })
    }

    /// Removes the default of an option that is a string.
    func clear(_ option: CURLoption) throws(CurlError) {
        try check(unsafe curlshim_easy_set_string(pointer, option, nil))
    }

    /// Whole milliseconds, rounded up so that a short time does not become "none"; capped at what libcurl takes.
    func set(_ option: CURLoption, milliseconds duration: Duration) throws(CurlError) {
        try set(option, Int(min(max(duration / .milliseconds(1), 0).rounded(.up), Double(Int32.max))))
    }

    /// Asks for a URL without user information and brackets, which lasts until the next `reset`.
    ///
    /// Taken apart beforehand: what libcurl takes apart itself it prints anew, byte by byte. What it cannot take apart
    /// it gets as it is, to say at the end of the transfer what is wrong.
    func setUsualURL(_ url: String) throws(CurlError) {
        let flags = UInt32(CURLU_PATH_AS_IS)
        let isTaken = unsafe curlshim_url_set(parsedURL, CURLUPART_URL, url, flags) == CURLUE_OK
        try check(unsafe curlshim_easy_set_url(pointer, isTaken ? parsedURL : nil))
        if !isTaken { try set(CURLOPT_URL, url) }
    }

    /// Sends these bytes; libcurl copies them.
    func setRequestBody(_ bytes: [UInt8]) throws(CurlError) {
        try set(CURLOPT_POST, 1)
        try check(unsafe curlshim_easy_set_offset(pointer, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(bytes.count)))
        // An empty array may have no address, which would mean another way to bring the bytes.
        let place = bytes.isEmpty ? [0] : bytes
        try check(
            unsafe place.withUnsafeBytes { place in
                let start = unsafe place.baseAddress?.assumingMemoryBound(to: CChar.self)
                return unsafe curlshim_easy_set_string(pointer, CURLOPT_COPYPOSTFIELDS, start)
            })
    }

    /// Sends these lines with each request, until the next `reset`.
    func setUsualHeaderFields(_ lines: [[UInt8]]) throws(CurlError) {
        usualHeaderFields = StringList(lines)
        try check(unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, usualHeaderFields.head))
    }

    /// Sends these lines instead of the usual ones, until the next `rest`.
    func setHeaderFields(_ lines: [[UInt8]]) throws(CurlError) {
        headerFields = StringList(lines)
        try check(unsafe curlshim_easy_set_list(pointer, CURLOPT_HTTPHEADER, headerFields.head))
    }

    /// Changes entries of the DNS cache, as `ResolvedNames` says.
    func setResolve(_ lines: [String]) throws(CurlError) {
        resolve = StringList(lines.map { Array($0.utf8) })
        try check(unsafe curlshim_easy_set_list(pointer, CURLOPT_RESOLVE, resolve.head))
    }

    /// Has libcurl hand header lines and body to the two functions with `context`, which must outlive the transfer.
    func setCallbacks(
        header: @escaping curl_write_callback, body: @escaping curl_write_callback, context: UnsafeMutableRawPointer
    ) throws(CurlError) {
        try check(unsafe curlshim_easy_set_data_callback(pointer, CURLOPT_HEADERFUNCTION, header))
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_HEADERDATA, context))
        try check(unsafe curlshim_easy_set_data_callback(pointer, CURLOPT_WRITEFUNCTION, body))
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_WRITEDATA, context))
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_ERRORBUFFER, errorText))
    }

    /// Has libcurl ask before it connects, and before it sends a request, with `context`, which must outlive the
    /// transfer.
    func setAddressCallbacks(
        open: @escaping curl_opensocket_callback, request: @escaping curl_prereq_callback,
        context: UnsafeMutableRawPointer
    ) throws(CurlError) {
        try check(unsafe curlshim_easy_set_opensocket_callback(pointer, open))
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_OPENSOCKETDATA, context))
        try check(unsafe curlshim_easy_set_prereq_callback(pointer, request))
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_PREREQDATA, context))
    }

    /// Has libcurl report to `notes`, which must outlive the connections, each socket that it closes.
    func setCloseCallback(_ notes: MultiNotes) throws(CurlError) {
        guard !hasCloseCallback else { return }
        try check(unsafe curlshim_easy_set_closesocket_callback(pointer, socketClosing))
        let context = unsafe Unmanaged.passUnretained(notes).toOpaque()
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_CLOSESOCKETDATA, context))
        hasCloseCallback = true
    }

    /// The TLS session of the connection that it uses; nil without TLS. To be asked while a request is under way.
    var tlsSession: UnsafeMutableRawPointer? { unsafe curlshim_easy_tls(pointer) }

    /// Whether received bytes wait in the TLS session of its connection.
    var hasPendingInput: Bool {
        guard let session = unsafe tlsSession else { return false }
        return unsafe curlshim_tls_has_pending(session) != 0
    }

    /// Reports the peer's close_notify on the TLS session of its connection to `notes`, which must outlive the session.
    ///
    /// - Returns: the session's number there; nil without TLS.
    func followSession(_ notes: MultiNotes) -> UInt? {
        guard let session = unsafe tlsSession else { return nil }
        let number = notes.sessions.enter()
        unsafe curlshim_tls_follow(session, Unmanaged.passUnretained(notes).toOpaque(), number)
        return number
    }

    /// Whether client and server agreed on HTTP/2.
    var speaksHTTP2: Bool {
        guard let session = unsafe tlsSession else { return false }
        return unsafe curlshim_tls_speaks_http2(session) != 0
    }

    /// Notes the transfer that the handle is used for, which must outlive the use.
    func setOwner(_ owner: UnsafeMutableRawPointer) throws(CurlError) {
        try check(unsafe curlshim_easy_set_pointer(pointer, CURLOPT_PRIVATE, owner))
    }

    // MARK: Results

    func long(_ info: CURLINFO) -> Int {
        var value = 0
        let result = unsafe curlshim_easy_get_long(pointer, info, &value)
        return result == CURLE_OK ? value : 0
    }

    func offset(_ info: CURLINFO) -> Int {
        var value: curl_off_t = 0
        let result = unsafe curlshim_easy_get_offset(pointer, info, &value)
        return result == CURLE_OK ? Int(value) : 0
    }

    /// A time that libcurl gives in microseconds.
    func time(_ info: CURLINFO) -> Duration {
        var value: curl_off_t = 0
        let result = unsafe curlshim_easy_get_offset(pointer, info, &value)
        return result == CURLE_OK ? .microseconds(value) : .zero
    }

    /// libcurl's sentence about the failure.
    var errorSentence: String { unsafe String(cString: errorText) }

    private func check(_ result: CURLcode) throws(CurlError) {
        guard result == CURLE_OK else { throw CurlError(.optionRefused, underlying: Int(result.rawValue)) }
    }
}
