extension HeaderFields {
    /// What may be kept of a response's fields: RFC 9111, section 3.1. Lines that are no fields go too.
    ///
    /// A `Connection` that names what the cache goes by is not followed there: RFC 9110, section 7.6.1, forbids it, and
    /// who could have it so would take a `no-cache` away.
    var storable: HeaderFields {
        let named = FieldList.members(values(bytes: "connection")).map { $0.map(\.lowercased) }.filter { name in
            !Self.cachingNames.contains { name.elementsEqual($0.utf8) }
        }
        return selecting { field in
            !Self.transientNames.contains { field.isNamed($0) }
                && !named.contains { $0.elementsEqual(field.name.lazy.map(\.lowercased)) }
        }
    }

    /// These fields of a kept response, brought up to date by those of a 304 or of an answer to HEAD: RFC 9111,
    /// section 3.2.
    ///
    /// Length, coding and range stay those of the body that is kept; it was decoded when it came. `Content-Type` is
    /// updated: what it says is not worked into the body. `Date` and `Age` are those of the newer response even where
    /// it has none: they are about it, not about the body.
    ///
    /// - Parameter keepsEntityTag: Let the tag stand although the newer response has another.
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

    /// Those of the connection (RFC 9110, section 7.6.1) and those of a proxy, which is no part of a `CacheKey`.
    private static let transientNames = [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    ]

    /// Those that say whether and how long an answer can be used.
    private static let cachingNames = ["age", "cache-control", "date", "etag", "expires", "last-modified", "vary"]

    /// Those that the kept body depends upon.
    private static let bodyNames = ["content-encoding", "content-length", "content-range"]

    /// The well-formed fields that `isWanted` says yes to.
    private func selecting(_ isWanted: (HeaderField) -> Bool) -> HeaderFields {
        var lines: [UInt8] = []
        for line in self.lines where isWanted(field(line)) {
            if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
            lines += bytes[line.line]
        }
        return HeaderFields(lines: lines)
    }
}
