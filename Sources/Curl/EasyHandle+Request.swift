internal import CLibCurl

/// Translation of a request to libcurl options. All relevant options are set, because the defaults permit other
/// schemes, proxies of the environment and unlimited waiting.
extension EasyHandle {
    /// Size of the receive buffer in bytes. libcurl's default, 16 KiB, needs 2.5 times the system calls for a body of
    /// 64 KiB. A buffer of 128 KiB is so large that the allocator returns it to the system after each transfer.
    private static let receiveBytes = 64 * 1024

    func configure(_ request: TransferRequest) throws(CurlError) {
        let lasting = request.lastingOptions
        if lasting == nil || lasting != lastingOptions {
            if lastingOptions != nil { reset() }
            try configureLasting(request)
            lastingOptions = lasting
        }
        // Handles with lasting options are used only for such URLs.
        if lasting != nil { try setUsualURL(request.url) } else { try set(CURLOPT_URL, request.url) }
        try set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds: request.connectTimeout)
        if request.hasOwnLines { try setHeaderFields(try request.headerLines()) }
        if request.ownsConnection {
            forbidReuse()
            closeAfterTransfer()
        }
    }

    private func configureLasting(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try configureMethod(request)
        // The path is already normalized as a cache key, so libcurl must not remove dot segments.
        try set(CURLOPT_PATH_AS_IS, 1)
        // libcurl 8 drops the question mark of an empty query.
        if let target = request.targetWithEmptyQuery { try set(CURLOPT_REQUEST_TARGET, target) }
        try set(CURLOPT_FOLLOWLOCATION, 0)
        try set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        try configureProxy(request)
        try set(CURLOPT_NOSIGNAL, 1)
        // See `ResolvedNames` for the reason.
        try set(CURLOPT_DNS_CACHE_TIMEOUT, 0)
        try set(CURLOPT_BUFFERSIZE, Self.receiveBytes)
        try set(CURLOPT_NOPROGRESS, 1)
        // Delay before the other IP version is tried in parallel, in milliseconds: RFC 8305, section 8, recommends 250.
        try set(CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 200)
        try configureTLS(request)
        // libcurl decodes a whole buffer at once, without a bound on the decoded size, and accepts a truncated stream
        // as complete.
        try set(CURLOPT_HTTP_CONTENT_DECODING, 0)
        // libcurl would format the two fields for each request, byte by byte.
        try setUsualHeaderFields(request.usualHeaderLines)
    }

    private func configureProxy(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_PROXY, request.proxy)
        // Ignores the environment's exceptions and saves their lookup for each request.
        try set(CURLOPT_NOPROXY, "")
        guard !request.proxy.isEmpty else { return }
        // User agent of CONNECT to the proxy; the header lines of the request are for the server.
        if !request.userAgent.isEmpty { try set(CURLOPT_USERAGENT, request.userAgent) }
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
            // A method that implies a body sends Content-Length 0 without one: RFC 9110, section 8.6.
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
        try set(CURLOPT_SSL_VERIFYPEER, request.verifiesServer ? 1 : 0)
        try set(CURLOPT_SSL_VERIFYHOST, request.verifiesServer ? 2 : 0)
        // libcurl's built-in certificate folder would be trusted in addition to the file.
        if let certificates = request.caCertificates {
            try set(CURLOPT_CAINFO_BLOB, certificates)
            try clear(CURLOPT_CAPATH)
        } else if let caFile = request.caFile {
            try set(CURLOPT_CAINFO, caFile)
            try clear(CURLOPT_CAPATH)
        }
        if let certificate = request.clientCertificate {
            // libcurl reuses a connection with the same certificate, even for another key. So the certificate includes
            // the key: as text outside of any block, which readers skip (RFC 7468, section 2).
            let key = (request.clientKey ?? []).map { $0 == UInt8(ascii: "-") ? UInt8(ascii: " ") : $0 }
            try set(CURLOPT_SSLCERT_BLOB, certificate + [UInt8(ascii: "\n")] + key)
            try set(CURLOPT_SSLKEY_BLOB, request.clientKey ?? certificate)
            // Without a passphrase, OpenSSL prompts for that of an encrypted key on the terminal.
            try set(CURLOPT_KEYPASSWD, "")
        }
        switch request.ownsConnection ? .http1 : request.version {
        case .http1:
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .http2OverTLS:
            // CURLOPT_PIPEWAIT is not set: in libcurl 7.88, requests that wait for a slow server's first connection
            // block requests to other servers.
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
        }
    }
}

extension TransferRequest {
    /// Options that a handle keeps for the next request with the same options.
    struct LastingOptions: Equatable {
        let userAgent: String
        let acceptEncoding: String
        let version: Version
    }

    /// Nil for a request with special settings. Its method, route and certificates, and a password in its URL, must not
    /// affect another request.
    fileprivate var lastingOptions: LastingOptions? {
        guard method == .get, body == nil, proxy.isEmpty, caFile == nil, caCertificates == nil,
            clientCertificate == nil, verifiesServer, hasUsualURL, !ownsConnection
        else { return nil }
        let namesCodings = hasField("accept-encoding")
        return LastingOptions(
            userAgent: userAgent, acceptEncoding: namesCodings ? "" : acceptEncoding, version: version)
    }

    /// Target of the request for a URL with an empty query; nil for other URLs. An http proxy gets the URL without user
    /// information: RFC 9112, section 3.2.2.
    fileprivate var targetWithEmptyQuery: String? {
        guard url.utf8.last == UInt8(ascii: "?"), let scheme = url.firstRange(of: "://"),
            let path = url[scheme.upperBound...].firstIndex(of: "/")
        else { return nil }
        guard url.hasPrefix("http:"), proxy.hasPrefix("http") else { return String(url[path...]) }
        let authority = url[scheme.upperBound..<path]
        let host = authority.lastIndex(of: "@").map { authority[authority.index(after: $0)...] } ?? authority
        return String(url[..<scheme.upperBound] + host + url[path...])
    }

    /// Whether the URL has no user information, no empty query, and no IPv6 address. libcurl 7.88 loses the zone of an
    /// address when it copies a parsed URL.
    private var hasUsualURL: Bool {
        let utf8 = url.utf8
        let bytes = utf8.span
        guard bytes.isEmpty || bytes[bytes.count - 1] != UInt8(ascii: "?") else { return false }
        for index in bytes.indices where bytes[index] == UInt8(ascii: "@") || bytes[index] == UInt8(ascii: "[") {
            return false
        }
        return true
    }

    /// Header lines sent unless the request has fields of these names.
    fileprivate var usualHeaderLines: [[UInt8]] {
        var lines: [[UInt8]] = []
        if !userAgent.isEmpty, !hasField("user-agent") { lines.append(Array("User-Agent: \(userAgent)".utf8)) }
        if !acceptEncoding.isEmpty, !hasField("accept-encoding") {
            lines.append(Array("Accept-Encoding: \(acceptEncoding)".utf8))
        }
        return lines
    }

    /// Whether the request has header lines of its own.
    fileprivate var hasOwnLines: Bool {
        if case .other = method { return true }
        return !headerFields.isEmpty
    }

    fileprivate func headerLines() throws(CurlError) -> [[UInt8]] {
        var lines = usualHeaderLines
        for field in headerFields { lines.append(try field.line()) }
        if case .other = method {
            // Suppresses libcurl's defaults for a body: the content type of a form, and `Expect`.
            if !hasField("content-type") { lines.append(Array("Content-Type:".utf8)) }
            lines.append(Array("Expect:".utf8))
        }
        return lines
    }

    /// - Parameter name: Name in lower case.
    private func hasField(_ name: String) -> Bool { headerFields.contains { $0.name.lowercased() == name } }
}

extension TransferRequest.HeaderField {
    /// Returns the field in the form of CURLOPT_HTTPHEADER. A field without a value ends with a semicolon.
    fileprivate func line() throws(CurlError) -> [UInt8] {
        let isNameSafe = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
        let isValueSafe = value.allSatisfy { $0 != 0 && $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        guard isNameSafe, isValueSafe else { throw CurlError(.badHeaderField) }
        let isBlank = value.allSatisfy { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
        return isBlank ? Array("\(name);".utf8) : Array("\(name): ".utf8) + value
    }
}
