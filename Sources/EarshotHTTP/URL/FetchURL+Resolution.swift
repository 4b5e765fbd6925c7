extension FetchURL {
    /// Resolves `reference` with this URL as its base; its fragment is dropped.
    ///
    /// RFC 3986, section 5.2, not strict: a reference with this URL's own scheme and no authority (`http:g`) is
    /// relative, as in the URL standard for http and https.
    public func resolve(_ reference: String, hosts: HostNameEncoder? = nil) throws(ParseError) -> FetchURL {
        let utf8 = reference.utf8
        return try resolve(utf8.span, hosts: hosts)
    }

    /// Implements `resolve(_:)` for bytes, which need not be UTF-8.
    ///
    /// - Parameter hosts: Encoder of an internationalized host name in `reference`.
    func resolve(_ reference: Span<UInt8>, hosts: HostNameEncoder? = nil) throws(ParseError) -> FetchURL {
        var reference = reference
        if let colon = URLParts.schemeEnd(reference) {
            let rest = reference.extracting(colon + 1..<reference.count)
            let isAbsolute = rest.count > 1 && rest[0] == UInt8(ascii: "/") && rest[1] == UInt8(ascii: "/")
            guard isHTTP, !isAbsolute, matches(reference, 0..<colon, lowercase: String(scheme)) else {
                return try FetchURL(bytes: reference, hosts: hosts)
            }
            reference = rest
        }
        // A bare fragment is parsed as well, because it must not contain controls.
        if reference.isEmpty { return self }
        guard !isOpaque || reference[0] == UInt8(ascii: "#") else { throw .opaqueBase }
        let base = reference[0] == UInt8(ascii: "#") ? description[...] : base(for: reference)
        guard reference.count <= HTTPLimits.urlBytes else { throw .tooLong }
        var target = Array(base.utf8)
        for index in reference.indices { target.append(reference[index]) }
        return try FetchURL(bytes: target.span, hosts: hosts)
    }
}
