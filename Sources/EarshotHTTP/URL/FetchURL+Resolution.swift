extension FetchURL {
    /// The URL that `reference` means on a page of this URL; its fragment is dropped.
    ///
    /// RFC 3986, section 5.2, not strict: a reference with this URL's own scheme and no authority (`http:g`) is taken
    /// as relative, as the URL standard does for http and https.
    public func resolve(_ reference: String, hosts: HostNameEncoder? = nil) throws(ParseError) -> FetchURL {
        let utf8 = reference.utf8
        return try resolve(utf8.span, hosts: hosts)
    }

    /// `resolve(_:)` on bytes, which need not be UTF-8.
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
        // A bare fragment too must be free of controls: it is parsed with the rest.
        if reference.isEmpty { return self }
        guard !isOpaque || reference[0] == UInt8(ascii: "#") else { throw .opaqueBase }
        let base = reference[0] == UInt8(ascii: "#") ? description[...] : base(for: reference)
        guard reference.count <= HTTPLimits.urlBytes else { throw .tooLong }
        var target = Array(base.utf8)
        for index in reference.indices { target.append(reference[index]) }
        return try FetchURL(bytes: target.span, hosts: hosts)
    }
}
