extension ParsedFields {
    /// Fields of a response that may be stored: RFC 9111, section 3.1. Malformed lines are removed.
    ///
    /// A `Connection` field cannot remove the fields that control caching: RFC 9110, section 7.6.1, forbids that, and a
    /// sender could otherwise remove a `no-cache`.
    var storable: ParsedFields {
        let named = FieldList.members(values("connection"))
        return selecting { line in
            !Self.transientNames.contains { isNamed(line, $0) }
                && (!named.contains { isNamed(line, $0) } || Self.cachingNames.contains { isNamed(line, $0) })
        }
    }

    /// Returns these fields of a stored response, updated by those of a 304 or of a response to HEAD: RFC 9111, section
    /// 3.2.
    ///
    /// Length, coding and range stay those of the stored body, which was decoded on receipt. `Content-Type` is updated,
    /// because it does not affect the stored bytes. `Date` and `Age` are taken from the newer response even if absent
    /// there, because they describe the response, not the body.
    ///
    /// - Parameter keepsEntityTag: Whether the stored tag stays even if the newer response has another.
    func updated(by newer: ParsedFields, keepsEntityTag: Bool) -> ParsedFields {
        let storable = newer.storable
        let newer = storable.selecting { line in
            !Self.bodyNames.contains { storable.isNamed(line, $0) }
                && !(keepsEntityTag && storable.isNamed(line, "etag"))
        }
        let kept = selecting { line in
            !isNamed(line, "date") && !isNamed(line, "age") && !newer.hasName(of: line, in: self)
        }
        return kept.adding(newer)
    }

    /// Connection-specific fields (RFC 9110, section 7.6.1), and fields for a proxy, which is not part of a `CacheKey`.
    private static let transientNames = [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]

    /// Fields that control caching.
    private static let cachingNames = ["age", "cache-control", "date", "etag", "expires", "last-modified", "vary"]

    /// Fields that describe the stored body.
    private static let bodyNames = ["content-encoding", "content-length", "content-range"]
}
