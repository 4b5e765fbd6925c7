internal import EarshotHTTP
internal import EarshotWire

/// Properties that requests must have in common to share a flight: method, URL, request fields except those that
/// `HTTPRequest.coalescingFields` leaves out, redirect mode, the partition, the route, the cookie jar, and the cache
/// mode unless another is as strict (`CacheMode.satisfyingModes`). The key of a flight for one request alone contains a
/// unique number. Credentials are in the URL and the fields, so each trust scope has its own flights.
struct FlightKey: Hashable {
    let url: String
    /// All other properties except the mode; empty for a plain GET without fields.
    let variantText: String
    var cacheMode: CacheMode
    /// Whether no field of the request is left out, so that the response suits all requests with this key.
    let requiresEqualFields: Bool
    /// Hash of `url` and `variantText` without the mode, because a lookup tries several modes.
    let hash: UInt32

    init(_ flight: Flight) {
        url = flight.url.description
        variantText = flight.variant
        cacheMode = flight.cacheMode
        requiresEqualFields = flight.requiresEqualFields
        hash = flight.keyHash
    }

    init(
        _ request: borrowing HTTPRequest, redirect: RedirectMode, partition: String?, alone: UInt64?,
        mode: CacheMode = .default, isExact: Bool = false
    ) {
        self.cacheMode = mode
        self.requiresEqualFields = isExact
        url = request.url.description
        let isPlain =
            request.method == .get && redirect == .follow && request.fields.isEmpty && request.route.isDefault
            && request.cookieJarOwner == nil
        guard !isPlain || partition != nil || alone != nil else {
            variantText = ""
            hash = Self.keyHash(url, "")
            return
        }
        var variant = "\(request.method) \(redirect.rawValue) \(partition ?? "")\(alone.map { " \($0)" } ?? "")\n"
        // Fields never contain an empty line, so the jar and route cannot be mistaken for fields.
        variant += request.cookieJarOwner.map { "\n\($0)\n" } ?? ""
        variant += request.route.canonicalText
        if isExact { variant = "exact " + variant }
        variant += Self.losslessText(request.coalescingFields(includesAll: isExact))
        self.variantText = variant
        hash = Self.keyHash(url, variant)
    }

    /// Returns bytes as text of one character each, so that fields which differ only in invalid UTF-8 stay different.
    private static func losslessText(_ bytes: [UInt8]) -> String {
        guard !bytes.allSatisfy({ $0 < 0x80 }) else { return String(decoding: bytes, as: UTF8.self) }
        var utf8: [UInt8] = []
        utf8.reserveCapacity(2 * bytes.count)
        for byte in bytes {
            if byte < 0x80 { utf8.append(byte) } else { utf8 += [0xc0 | byte >> 6, 0x80 | byte & 0x3f] }
        }
        return String(decoding: utf8, as: UTF8.self)
    }

    private static func keyHash(_ url: String, _ variant: String) -> UInt32 {
        let rest = variant.isEmpty ? 0 : variant.hashValue
        return NumberHash.hash(UInt64(truncatingIfNeeded: url.hashValue), UInt64(truncatingIfNeeded: rest))
    }

    func hash(into hasher: inout Hasher) { hasher.combine(hash) }
}

/// Hash of the content of a request, seeded per process, which it never leaves. Both sides of a comparison come from
/// programs of one user; a collision could only make a program mistake one of its own requests for another.
struct Fingerprint {
    let hash64: UInt64

    init(of fetch: Fetch, body: RequestBody?) {
        var hasher = Hasher()
        hasher.combine(fetch.url)
        let isUsual = fetch.options.hasDefaultContent
        // Skipped for most requests, which have none of these.
        if !isUsual || !fetch.httpFields.isEmpty || body != nil {
            hasher.combine(fetch.httpFields)
            if !isUsual { fetch.options.hashContent(into: &hasher) }
            hasher.combine(body?.digestPrefix)
        }
        hash64 = UInt64(bitPattern: Int64(hasher.finalize()))
    }
}
