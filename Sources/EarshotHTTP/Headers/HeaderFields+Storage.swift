extension HeaderFields {
    /// Fields of a response that may be stored: RFC 9111, section 3.1. Malformed lines are removed.
    ///
    /// A `Connection` field cannot remove the fields that control caching: RFC 9110, section 7.6.1, forbids that, and a
    /// sender could otherwise remove a `no-cache`.
    var storable: HeaderFields {
        let named = FieldList.members(values(bytes: "connection")).map { $0.map(\.lowercased) }.filter { name in
            !Self.cachingNames.contains { name.elementsEqual($0.utf8) }
        }
        return selecting { field in
            !Self.transientNames.contains { field.isNamed($0) }
                && !named.contains { $0.elementsEqual(field.name.lazy.map(\.lowercased)) }
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
    func updated(by newer: HeaderFields, keepsEntityTag: Bool) -> HeaderFields {
        let newer = newer.storable.selecting { field in
            !Self.bodyNames.contains { field.isNamed($0) } && !(keepsEntityTag && field.isNamed("etag"))
        }
        let replaced = Set(newer.map { $0.name.map(\.lowercased) })
        let kept = selecting { field in
            !field.isNamed("date") && !field.isNamed("age") && !replaced.contains(field.name.map(\.lowercased))
        }
        if kept.isEmpty { return newer }
        return newer.isEmpty ? kept : HeaderFields(lines: kept.bytes + [UInt8(ascii: "\n")] + newer.bytes)
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

    /// Returns the well-formed fields that satisfy `isWanted`.
    private func selecting(_ isWanted: (HeaderField) -> Bool) -> HeaderFields {
        var lines: [UInt8] = []
        for line in self.lines where isWanted(field(line)) {
            if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
            lines += bytes[line.line]
        }
        return HeaderFields(lines: lines)
    }
}
