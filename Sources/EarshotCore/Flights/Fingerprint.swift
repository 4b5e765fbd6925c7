internal import EarshotWire

/// Hash of the content of a request under the process's own seed; it never leaves the process. Both sides of a comparison
/// come from programs of one user: a collision would only let one of them mistake its own request.
struct Fingerprint {
    let value: UInt64

    init(of fetch: Fetch, body: RequestBody?) {
        var hasher = Hasher()
        hasher.combine(fetch.url)
        let isUsual = fetch.options.hasUsualContent
        // Most requests have none of all this.
        if !isUsual || !fetch.httpFields.isEmpty || body != nil {
            hasher.combine(fetch.httpFields)
            if !isUsual { fetch.options.hashContent(into: &hasher) }
            hasher.combine(body?.fingerprint)
        }
        value = UInt64(bitPattern: Int64(hasher.finalize()))
    }
}
