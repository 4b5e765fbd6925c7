internal import CLibCurl

/// Translation of a request to libcurl options. All relevant options are set, because the defaults permit other
/// schemes, proxies of the environment and unlimited waiting.
extension EasyHandle {
    /// Size of the receive buffer in bytes. libcurl's default, 16 KiB, needs 2.5 times the system calls for a body of
    /// 64 KiB. A buffer of 128 KiB is so large that the allocator returns it to the system after each transfer.
    private static let receiveBufferBytes = 64 * 1024

    func configure(_ request: TransferRequest) throws(CurlError) {
        let lasting = request.reusableOptions
        if lasting == nil || lasting != reusableOptions {
            if reusableOptions != nil { reset() }
            try configureReusableOptions(request)
            reusableOptions = lasting
        }
        // Handles with lasting options are used only for such URLs.
        if lasting != nil { try setPlainURL(request.url) } else { try setOption(CURLOPT_URL, to: request.url) }
        try setOption(CURLOPT_CONNECTTIMEOUT_MS, milliseconds: request.connectTimeout)
        if request.hasCustomHeaderLines { try setHeaderFields(try request.headerLines()) }
        if request.requiresExclusiveConnection {
            requireNewConnection()
            closeAfterTransfer()
        }
    }

    private func configureReusableOptions(_ request: TransferRequest) throws(CurlError) {
        try setOption(CURLOPT_PROTOCOLS_STR, to: "http,https")
        try configureMethod(request)
        // The path is already normalized as a cache key, so libcurl must not remove dot segments.
        try setOption(CURLOPT_PATH_AS_IS, to: 1)
        // libcurl 8 drops the question mark of an empty query.
        if let target = request.targetWithEmptyQuery { try setOption(CURLOPT_REQUEST_TARGET, to: target) }
        try setOption(CURLOPT_FOLLOWLOCATION, to: 0)
        try setOption(CURLOPT_NETRC, to: Int(CURL_NETRC_IGNORED.rawValue))
        try configureProxy(request)
        try setOption(CURLOPT_NOSIGNAL, to: 1)
        // See `ResolvedNames` for the reason.
        try setOption(CURLOPT_DNS_CACHE_TIMEOUT, to: 0)
        try setOption(CURLOPT_BUFFERSIZE, to: Self.receiveBufferBytes)
        try setOption(CURLOPT_NOPROGRESS, to: 1)
        // Delay before the other IP version is tried in parallel, in milliseconds: RFC 8305, section 8, recommends 250.
        try setOption(CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, to: 200)
        try configureTLS(request)
        // libcurl decodes a whole buffer at once, without a bound on the decoded size, and accepts a truncated stream
        // as complete.
        try setOption(CURLOPT_HTTP_CONTENT_DECODING, to: 0)
        // libcurl would format the two fields for each request, byte by byte.
        try setDefaultHeaderFields(request.defaultHeaderLines)
    }

    private func configureProxy(_ request: TransferRequest) throws(CurlError) {
        try setOption(CURLOPT_PROXY, to: request.proxy)
        // Ignores the environment's exceptions and saves their lookup for each request.
        try setOption(CURLOPT_NOPROXY, to: "")
        guard !request.proxy.isEmpty else { return }
        // User agent of CONNECT to the proxy; the header lines of the request are for the server.
        if !request.userAgent.isEmpty { try setOption(CURLOPT_USERAGENT, to: request.userAgent) }
        try setOption(CURLOPT_PROXY_SSLVERSION, to: Int(CURL_SSLVERSION_TLSv1_2))
        try setOption(CURLOPT_PROXY_SSL_VERIFYPEER, to: 1)
        try setOption(CURLOPT_PROXY_SSL_VERIFYHOST, to: 2)
        if let certificates = request.caCertificates {
            try setOption(CURLOPT_PROXY_CAINFO_BLOB, to: certificates)
            try clearOption(CURLOPT_PROXY_CAPATH)
        } else if let caFile = request.caFile {
            try setOption(CURLOPT_PROXY_CAINFO, to: caFile)
            try clearOption(CURLOPT_PROXY_CAPATH)
        }
    }

    private func configureMethod(_ request: TransferRequest) throws(CurlError) {
        switch request.method {
        case .get: try setOption(CURLOPT_HTTPGET, to: 1)
        case .head: try setOption(CURLOPT_NOBODY, to: 1)
        case .other(let name, let isRepeatable):
            // A method that implies a body sends Content-Length 0 without one: RFC 9110, section 8.6.
            if let body = request.body ?? (["POST", "PUT", "PATCH"].contains(name) ? [] : nil) {
                try setRequestBody(body)
            } else {
                try setOption(CURLOPT_HTTPGET, to: 1)
            }
            try setOption(CURLOPT_CUSTOMREQUEST, to: name)
            if !isRepeatable { try setOption(CURLOPT_FRESH_CONNECT, to: 1) }
        }
    }

    private func configureTLS(_ request: TransferRequest) throws(CurlError) {
        try setOption(CURLOPT_SSLVERSION, to: Int(CURL_SSLVERSION_TLSv1_2))
        try setOption(CURLOPT_SSL_VERIFYPEER, to: request.verifiesServer ? 1 : 0)
        try setOption(CURLOPT_SSL_VERIFYHOST, to: request.verifiesServer ? 2 : 0)
        // libcurl's built-in certificate folder would be trusted in addition to the file.
        if let certificates = request.caCertificates {
            try setOption(CURLOPT_CAINFO_BLOB, to: certificates)
            try clearOption(CURLOPT_CAPATH)
        } else if let caFile = request.caFile {
            try setOption(CURLOPT_CAINFO, to: caFile)
            try clearOption(CURLOPT_CAPATH)
        }
        if let certificate = request.clientCertificate {
            // libcurl reuses a connection with the same certificate, even for another key. So the certificate includes
            // the key: as text outside of any block, which readers skip (RFC 7468, section 2).
            let key = (request.clientKey ?? []).map { $0 == UInt8(ascii: "-") ? UInt8(ascii: " ") : $0 }
            try setOption(CURLOPT_SSLCERT_BLOB, to: certificate + [UInt8(ascii: "\n")] + key)
            try setOption(CURLOPT_SSLKEY_BLOB, to: request.clientKey ?? certificate)
            // Without a passphrase, OpenSSL prompts for that of an encrypted key on the terminal.
            try setOption(CURLOPT_KEYPASSWD, to: "")
        }
        switch request.requiresExclusiveConnection ? .http1 : request.version {
        case .http1:
            try setOption(CURLOPT_HTTP_VERSION, to: Int(CURL_HTTP_VERSION_1_1))
        case .http2OverTLS:
            // CURLOPT_PIPEWAIT is not set: in libcurl 7.88, requests that wait for a slow server's first connection
            // block requests to other servers.
            try setOption(CURLOPT_HTTP_VERSION, to: Int(CURL_HTTP_VERSION_2TLS))
        }
    }
}

extension TransferRequest {
    /// Options that a handle keeps for the next request with the same options.
    struct ReusableOptions: Equatable {
        let userAgent: String
        let acceptEncoding: String
        let version: Version
    }

    /// Nil for a request with special settings. Its method, route and certificates, and a password in its URL, must not
    /// affect another request.
    fileprivate var reusableOptions: ReusableOptions? {
        guard method == .get, body == nil, proxy.isEmpty, caFile == nil, caCertificates == nil,
            clientCertificate == nil, verifiesServer, hasPlainURL, !requiresExclusiveConnection
        else { return nil }
        let namesCodings = hasField("accept-encoding")
        return ReusableOptions(
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
    private var hasPlainURL: Bool {
        let utf8 = url.utf8
        let bytes = utf8.span
        guard bytes.isEmpty || bytes[bytes.count - 1] != UInt8(ascii: "?") else { return false }
        for index in bytes.indices where bytes[index] == UInt8(ascii: "@") || bytes[index] == UInt8(ascii: "[") {
            return false
        }
        return true
    }

    /// Header lines sent unless the request has fields of these names.
    fileprivate var defaultHeaderLines: [[UInt8]] {
        var lines: [[UInt8]] = []
        if !userAgent.isEmpty, !hasField("user-agent") { lines.append(Array("User-Agent: \(userAgent)".utf8)) }
        if !acceptEncoding.isEmpty, !hasField("accept-encoding") {
            lines.append(Array("Accept-Encoding: \(acceptEncoding)".utf8))
        }
        return lines
    }

    /// Whether the request has header lines of its own.
    fileprivate var hasCustomHeaderLines: Bool {
        if case .other = method { return true }
        return !headerFields.isEmpty
    }

    fileprivate func headerLines() throws(CurlError) -> [[UInt8]] {
        var lines = defaultHeaderLines
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
