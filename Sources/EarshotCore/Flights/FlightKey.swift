internal import EarshotHTTP
internal import EarshotWire

/// Properties that requests must have in common to share a flight: method, URL, request fields except those that
/// `HTTPRequest.sharedFields` leaves out, redirect mode, the partition, the route, the cookie jar, and the cache mode
/// unless another is as strict (`CacheMode.stricter`).
/// The key of a flight for one request alone contains a unique number. Credentials are in the URL and the fields, so
/// each trust scope has its own flights.
struct FlightKey: Hashable {
    let url: String
    /// All other properties except the mode; empty for a plain GET without fields.
    let variant: String
    var mode: CacheMode
    /// Whether no field of the request is left out, so that the response suits all requests with this key.
    let isExact: Bool
    /// Hash of `url` and `variant` without the mode, because a lookup tries several modes.
    let hash: UInt32

    init(_ flight: Flight) {
        url = flight.url.description
        variant = flight.variant
        mode = flight.mode
        isExact = flight.isExact
        hash = flight.keyHash
    }

    init(
        _ request: borrowing HTTPRequest, redirect: RedirectMode, partition: String?, alone: UInt64?,
        mode: CacheMode = .default, isExact: Bool = false
    ) {
        self.mode = mode
        self.isExact = isExact
        url = request.url.description
        let isPlain =
            request.method == .get && redirect == .follow && request.fields.isEmpty && request.route.isUsual
            && request.jar == nil
        guard !isPlain || partition != nil || alone != nil else {
            variant = ""
            hash = Self.hash(url, "")
            return
        }
        var variant = "\(request.method) \(redirect.rawValue) \(partition ?? "")\(alone.map { " \($0)" } ?? "")\n"
        // Fields never contain an empty line, so the jar and route cannot be mistaken for fields.
        variant += request.jar.map { "\n\($0)\n" } ?? ""
        variant += request.route.canonical
        if isExact { variant = "exact " + variant }
        variant += Self.text(request.sharedFields(whole: isExact))
        self.variant = variant
        hash = Self.hash(url, variant)
    }

    /// Returns bytes as text of one character each, so that fields which differ only in invalid UTF-8 stay different.
    private static func text(_ bytes: [UInt8]) -> String {
        guard !bytes.allSatisfy({ $0 < 0x80 }) else { return String(decoding: bytes, as: UTF8.self) }
        var utf8: [UInt8] = []
        utf8.reserveCapacity(2 * bytes.count)
        for byte in bytes {
            if byte < 0x80 { utf8.append(byte) } else { utf8 += [0xc0 | byte >> 6, 0x80 | byte & 0x3f] }
        }
        return String(decoding: utf8, as: UTF8.self)
    }

    private static func hash(_ url: String, _ variant: String) -> UInt32 {
        let rest = variant.isEmpty ? 0 : variant.hashValue
        return NumberHash.of(UInt64(truncatingIfNeeded: url.hashValue), UInt64(truncatingIfNeeded: rest))
    }

    func hash(into hasher: inout Hasher) { hasher.combine(hash) }
}
