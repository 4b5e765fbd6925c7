internal import EarshotWire

/// Hash of the content of a request, seeded per process, which it never leaves. Both sides of a comparison come from
/// programs of one user; a collision could only make a program mistake one of its own requests for another.
struct Fingerprint {
    let value: UInt64

    init(of fetch: Fetch, body: RequestBody?) {
        var hasher = Hasher()
        hasher.combine(fetch.url)
        let isUsual = fetch.options.hasUsualContent
        // Skipped for most requests, which have none of these.
        if !isUsual || !fetch.httpFields.isEmpty || body != nil {
            hasher.combine(fetch.httpFields)
            if !isUsual { fetch.options.hashContent(into: &hasher) }
            hasher.combine(body?.fingerprint)
        }
        value = UInt64(bitPattern: Int64(hasher.finalize()))
    }
}
