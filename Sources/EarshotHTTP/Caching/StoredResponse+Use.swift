extension StoredResponse {
    /// Returns the fields of a response from the cache, with a current `Age`: RFC 9111, section 4.
    public func fields(usedAt now: Int64) -> HeaderFields {
        var used = fields
        used.remove("age")
        used.add("age".utf8, String(age(now: now)).utf8)
        return used
    }

    /// Returns the fields of a 206 with a range of the body, or of a 416 for a range that is not satisfiable: RFC 9110,
    /// sections 15.3.7 and 15.5.17.
    ///
    /// - Parameter length: Length of the whole body in bytes.
    public func fields(ofRange range: Range<Int>?, length: Int, usedAt now: Int64) -> HeaderFields {
        var used = fields(usedAt: now)
        used.remove("content-range")
        used.remove("content-length")
        let bytes = range.map { "\($0.lowerBound)-\($0.upperBound - 1)" } ?? "*"
        used.add("content-range".utf8, "bytes \(bytes)/\(length)".utf8)
        used.add("content-length".utf8, String(range?.count ?? 0).utf8)
        return used
    }
}
