extension StoredResponse {
    /// The fields with which it is handed out: `Age` is told anew, RFC 9111, section 4.
    public func fields(usedAt now: Int64) -> HeaderFields {
        var used = fields
        used.remove("age")
        used.add("age".utf8, String(age(now: now)).utf8)
        return used
    }
}
