internal import EarshotWire

/// Properties of a request on which `CacheRule` and the core's `Cache` depend: ranges, conditions and cache modes.
extension HTTPRequest {
    /// Whether the client's own fields select a range, condition or coding, so that the response suits only this
    /// request: Range, all fields beginning with `If-`, and Accept-Encoding unless the worker decodes nothing.
    public var selectsResponse: Bool { fields.contains(where: isSelectionField) }

    /// Range of a GET that a stored response can answer: one range of bytes without a coding, and without a condition
    /// but `If-Range`. Nil for any other request.
    var servableRange: RequestedRange? {
        guard method == .get, let text = fields.singleValue(named: "range") else { return nil }
        let isPlain = !fields.contains { field in
            isSelectionField(field) && !field.isNamed("range") && !field.isNamed("if-range")
        }
        return isPlain ? RequestedRange(fieldValue: text) : nil
    }

    /// Whether the cache may answer the request: it selects no answer of its own, or only a range.
    public var canBeAnsweredByCache: Bool { !selectsResponse || servableRange != nil }

    private func isSelectionField(_ field: HeaderField) -> Bool {
        field.isNamed("range") || route.decodesBody && field.isNamed("accept-encoding")
            || field.name.prefix(3).map(\.lowercased).elementsEqual("if-".utf8)
    }
}

extension HeaderFields {
    /// Returns whether a response with this status is valid for a request with these fields. A 304 requires a condition
    /// (RFC 9110, section 15.4.5), a 206 a range (section 15.3.7).
    public func permitResponse(withStatus status: Int) -> Bool {
        switch status {
        case 206: contains("range")
        case 304: contains("if-none-match") || contains("if-modified-since")
        default: true
        }
    }
}

extension CacheMode {
    /// Returns the fields that instruct caches on the way to the server, unless the client sets them: the Fetch
    /// standard, "HTTP-network-or-cache fetch".
    func cacheControlFields(besides request: HeaderFields) -> HeaderFields {
        var fields = HeaderFields()
        switch self {
        case .noStore, .reload:
            if !request.contains("pragma") { fields.appendUnchecked("pragma".utf8, "no-cache".utf8) }
            if !request.contains("cache-control") { fields.appendUnchecked("cache-control".utf8, "no-cache".utf8) }
        case .noCache:
            if !request.contains("cache-control") { fields.appendUnchecked("cache-control".utf8, "max-age=0".utf8) }
        case .default, .explicit, .forceCache, .onlyIfCached: break
        }
        return fields
    }
}
