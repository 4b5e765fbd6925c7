internal import CLibCurl

/// How a request is told to libcurl. Every option that matters is set: the defaults allow other schemes, the
/// environment's proxies, and waiting for ever.
extension EasyHandle {
    /// Bytes that are received at a time. libcurl's default, 16 KiB, makes two and a half times the system calls for a
    /// body of 64; a buffer of 128 is so large that the allocator gives it back to the system after each transfer.
    private static let receiveBytes = 64 * 1024

    func configure(_ request: TransferRequest) throws(CurlError) {
        let lasting = request.lastingOptions
        if lasting == nil || lasting != lastingOptions {
            if lastingOptions != nil { reset() }
            try configureLasting(request)
            lastingOptions = lasting
        }
        // A handle whose options last has asked for no URL but such.
        if lasting != nil { try setUsualURL(request.url) } else { try set(CURLOPT_URL, request.url) }
        try set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds: request.connectTimeout)
        try set(CURLOPT_TIMEOUT_MS, milliseconds: request.totalTimeout)
        if request.hasOwnLines { try setHeaderFields(try request.headerLines()) }
    }

    private func configureLasting(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try configureMethod(request)
        // The path is a cache key already: libcurl removes no dot segments of its own.
        try set(CURLOPT_PATH_AS_IS, 1)
        // libcurl 8 drops the question mark of an empty query.
        if let target = request.targetWithEmptyQuery { try set(CURLOPT_REQUEST_TARGET, target) }
        try set(CURLOPT_FOLLOWLOCATION, 0)
        try set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        try configureProxy(request)
        try set(CURLOPT_NOSIGNAL, 1)
        // `ResolvedNames` says why.
        try set(CURLOPT_DNS_CACHE_TIMEOUT, 0)
        try set(CURLOPT_BUFFERSIZE, Self.receiveBytes)
        try set(CURLOPT_NOPROGRESS, 1)
        // How long the better IP version has before the other is tried beside it: RFC 8305, section 8, takes 250.
        try set(CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 200)
        try configureTLS(request)
        // libcurl decodes a whole buffer at once, however large it becomes, and takes a stream that ends early for whole.
        try set(CURLOPT_HTTP_CONTENT_DECODING, 0)
        // libcurl would print the two anew for each request, byte by byte.
        try setUsualHeaderFields(request.usualHeaderLines)
    }

    private func configureProxy(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_PROXY, request.proxy)
        // The environment's exceptions are not this request's: nor are they looked up for each.
        try set(CURLOPT_NOPROXY, "")
        guard !request.proxy.isEmpty else { return }
        // What CONNECT says to the proxy; the lines of the request are for the server.
        if !request.userAgent.isEmpty { try set(CURLOPT_USERAGENT, request.userAgent) }
        try set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        try set(CURLOPT_PROXY_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        try set(CURLOPT_PROXY_SSL_VERIFYPEER, 1)
        try set(CURLOPT_PROXY_SSL_VERIFYHOST, 2)
        if let certificates = request.caCertificates {
            try set(CURLOPT_PROXY_CAINFO_BLOB, certificates)
            try clear(CURLOPT_PROXY_CAPATH)
        } else if let caFile = request.caFile {
            try set(CURLOPT_PROXY_CAINFO, caFile)
            try clear(CURLOPT_PROXY_CAPATH)
        }
    }

    private func configureMethod(_ request: TransferRequest) throws(CurlError) {
        switch request.method {
        case .get: try set(CURLOPT_HTTPGET, 1)
        case .head: try set(CURLOPT_NOBODY, 1)
        case .other(let name, let isRepeatable):
            // A method that means a body says that it has none: RFC 9110, section 8.6.
            if let body = request.body ?? (["POST", "PUT", "PATCH"].contains(name) ? [] : nil) {
                try setRequestBody(body)
            } else {
                try set(CURLOPT_HTTPGET, 1)
            }
            try set(CURLOPT_CUSTOMREQUEST, name)
            if !isRepeatable { try set(CURLOPT_FRESH_CONNECT, 1) }
        }
    }

    private func configureTLS(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        try set(CURLOPT_SSL_VERIFYPEER, 1)
        try set(CURLOPT_SSL_VERIFYHOST, 2)
        // A folder that libcurl was built with would be trusted beside the file.
        if let certificates = request.caCertificates {
            try set(CURLOPT_CAINFO_BLOB, certificates)
            try clear(CURLOPT_CAPATH)
        } else if let caFile = request.caFile {
            try set(CURLOPT_CAINFO, caFile)
            try clear(CURLOPT_CAPATH)
        }
        if let certificate = request.clientCertificate {
            try set(CURLOPT_SSLCERT_BLOB, certificate)
            try set(CURLOPT_SSLKEY_BLOB, request.clientKey ?? certificate)
            // Without one OpenSSL asks the terminal for the passphrase of an encrypted key.
            try set(CURLOPT_KEYPASSWD, "")
        }
        switch request.version {
        case .http1:
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .http2OverTLS:
            // Without CURLOPT_PIPEWAIT: in libcurl 7.88 requests that wait for a slow server's first connection keep those to
            // other servers waiting.
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
        }
    }
}

extension TransferRequest {
    /// Options that a handle may keep for its next request, if that has the same.
    struct LastingOptions: Equatable {
        let userAgent: String
        let acceptEncoding: String
        let version: Version
    }

    /// Nil for a request that has more than a usual one: nothing of its method, its way and its certificates is to be
    /// met by another, and no password of its URL.
    fileprivate var lastingOptions: LastingOptions? {
        guard method == .get, body == nil, proxy.isEmpty, caFile == nil, caCertificates == nil,
            clientCertificate == nil,
            hasUsualURL
        else { return nil }
        let namesCodings = hasField("accept-encoding")
        return LastingOptions(
            userAgent: userAgent, acceptEncoding: namesCodings ? "" : acceptEncoding, version: version)
    }

    /// The path and the question mark of a URL with an empty query; nil for other URLs, and for those that a proxy gets
    /// whole.
    fileprivate var targetWithEmptyQuery: String? {
        guard url.utf8.last == UInt8(ascii: "?"), proxy.isEmpty || url.hasPrefix("https:"),
            let scheme = url.firstRange(of: "://"), let path = url[scheme.upperBound...].firstIndex(of: "/")
        else { return nil }
        return String(url[path...])
    }

    /// Whether the URL has no user information, no empty query, and no IPv6 address: the zone of one is lost in libcurl
    /// 7.88 when a URL that was taken apart is copied.
    private var hasUsualURL: Bool {
        let utf8 = url.utf8
        let bytes = utf8.span
        guard bytes.isEmpty || bytes[bytes.count - 1] != UInt8(ascii: "?") else { return false }
        for index in bytes.indices where bytes[index] == UInt8(ascii: "@") || bytes[index] == UInt8(ascii: "[") {
            return false
        }
        return true
    }

    /// What goes out with a request that says nothing of it.
    fileprivate var usualHeaderLines: [[UInt8]] {
        var lines: [[UInt8]] = []
        if !userAgent.isEmpty, !hasField("user-agent") { lines.append(Array("User-Agent: \(userAgent)".utf8)) }
        if !acceptEncoding.isEmpty, !hasField("accept-encoding") {
            lines.append(Array("Accept-Encoding: \(acceptEncoding)".utf8))
        }
        return lines
    }

    /// Whether there is more to say than the usual.
    fileprivate var hasOwnLines: Bool {
        if case .other = method { return true }
        return !headerFields.isEmpty
    }

    fileprivate func headerLines() throws(CurlError) -> [[UInt8]] {
        var lines = usualHeaderLines
        for field in headerFields { lines.append(try field.line()) }
        if case .other = method {
            // What libcurl would say by itself of a body: that it is a form, and that it waits to be asked for.
            if !hasField("content-type") { lines.append(Array("Content-Type:".utf8)) }
            lines.append(Array("Expect:".utf8))
        }
        return lines
    }

    /// - Parameter name: in lower case.
    private func hasField(_ name: String) -> Bool { headerFields.contains { $0.name.lowercased() == name } }
}

extension TransferRequest.HeaderField {
    /// The field as CURLOPT_HTTPHEADER takes it, in which a field without a value ends in a semicolon.
    fileprivate func line() throws(CurlError) -> [UInt8] {
        let isNameSafe = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
        let isValueSafe = value.allSatisfy { $0 != 0 && $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        guard isNameSafe, isValueSafe else { throw CurlError(.badHeaderField) }
        let isBlank = value.allSatisfy { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
        return isBlank ? Array("\(name);".utf8) : Array("\(name): ".utf8) + value
    }
}
