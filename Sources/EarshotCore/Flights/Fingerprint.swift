internal import EarshotWire

/// A hash over the content of a request, by the process's own seed. Both sides of a comparison come from programs of
/// one user: a collision would only let one of them mistake its own request.
struct Fingerprint {
    let value: UInt64

    init(of fetch: Fetch, body: RequestBody?) {
        var hasher = Hasher()
        hasher.combine(fetch.url)
        let options = fetch.options
        // Most say nothing of all this.
        if !Self.isUsual(options) || !fetch.httpFields.isEmpty || body != nil {
            hasher.combine(fetch.httpFields)
            hasher.combine(options.method)
            hasher.combine(options.key)
            hasher.combine(options.digest)
            hasher.combine(options.redirect)
            hasher.combine(options.cache)
            hasher.combine(options.isWarm)
            hasher.combine(options.coalesces)
            hasher.combine(options.route)
            hasher.combine(options.usesCookies)
            hasher.combine(options.isDurable)
            hasher.combine(body?.fingerprint)
        }
        value = UInt64(bitPattern: Int64(hasher.finalize()))
    }

    private static func isUsual(_ options: Fetch.Options) -> Bool {
        options.method == "GET" && options.key == nil && options.digest == nil && options.redirect == .follow
            && options.cache == .default && !options.isWarm && options.coalesces && options.route.isUsual
            && !options.usesCookies && !options.isDurable
    }
}
