internal import CLibCurl

/// How a request is told to libcurl. Every option that matters is set: the defaults allow other schemes, the
/// environment's proxies, and waiting for ever.
extension EasyHandle {
    func configure(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_URL, request.url)
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try set(request.method == .head ? CURLOPT_NOBODY : CURLOPT_HTTPGET, 1)
        try set(CURLOPT_FOLLOWLOCATION, 0)
        try set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        try set(CURLOPT_PROXY, request.proxy)
        try set(CURLOPT_NOSIGNAL, 1)
        try set(CURLOPT_NOPROGRESS, 1)
        try configureTimeouts(request)
        try configureTLS(request)
        try configureHeader(request)
        if !request.resolve.isEmpty { try setResolve(request.resolve) }
    }

    private func configureTimeouts(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds: request.connectTimeout)
        try set(CURLOPT_TIMEOUT_MS, milliseconds: request.totalTimeout)
        // How long the better IP version has before the other is tried beside it: RFC 8305, section 8, takes 250.
        try set(CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 200)
    }

    private func configureTLS(_ request: TransferRequest) throws(CurlError) {
        try set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        try set(CURLOPT_SSL_VERIFYPEER, 1)
        try set(CURLOPT_SSL_VERIFYHOST, 2)
        if let caFile = request.caFile { try set(CURLOPT_CAINFO, caFile) }
        switch request.version {
        case .http1:
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .http2OverTLS:
            try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
            try set(CURLOPT_PIPEWAIT, 1)
        }
    }

    private func configureHeader(_ request: TransferRequest) throws(CurlError) {
        if !request.userAgent.isEmpty { try set(CURLOPT_USERAGENT, request.userAgent) }
        // An empty value stands for all encodings built in. A caller with a field of its own wants the bytes as sent.
        let hasOwnEncoding = request.headerFields.contains { $0.name.lowercased() == "accept-encoding" }
        if !hasOwnEncoding { try set(CURLOPT_ACCEPT_ENCODING, "") }
        var lines: [[UInt8]] = []
        for field in request.headerFields { lines.append(try field.line()) }
        if !lines.isEmpty { try setHeaderFields(lines) }
    }
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
