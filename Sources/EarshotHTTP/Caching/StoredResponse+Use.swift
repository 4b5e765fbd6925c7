extension StoredResponse {
    /// Returns the fields of a response from the cache, with a current `Age`: RFC 9111, section 4.
    public func fields(usedAt now: Int64) -> HeaderFields {
        var used = fields
        used.remove("age")
        used.add("age".utf8, String(age(now: now)).utf8)
        return used
    }
}
