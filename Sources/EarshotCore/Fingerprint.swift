internal import EarshotWire

/// A hash over the content of a request, by the process's own seed. Both sides of a comparison come from programs of
/// one user: a collision would only let one of them mistake its own request.
struct Fingerprint {
    let value: UInt64

    init(of fetch: Fetch, body: RequestBody?) {
        var hasher = Hasher()
        hasher.combine(fetch.url)
        hasher.combine(fetch.httpFields)
        hasher.combine(fetch.options.method)
        hasher.combine(fetch.options.key)
        hasher.combine(fetch.options.digest)
        hasher.combine(fetch.options.redirect)
        hasher.combine(fetch.options.cache)
        hasher.combine(fetch.options.isWarm)
        hasher.combine(fetch.options.coalesces)
        hasher.combine(fetch.options.route)
        hasher.combine(fetch.options.usesCookies)
        hasher.combine(fetch.options.isDurable)
        hasher.combine(body?.fingerprint)
        value = UInt64(bitPattern: Int64(hasher.finalize()))
    }
}
