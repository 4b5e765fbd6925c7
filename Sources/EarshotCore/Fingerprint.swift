internal import EarshotWire

/// FNV-1a over the content of a request. Both sides of a comparison come from programs of one user: a collision would
/// only let one of them mistake its own request.
struct Fingerprint {
    private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    init(of fetch: Fetch) {
        add(fetch.url.utf8)
        add(fetch.httpFields)
        add(fetch.options.method.utf8)
        add((fetch.options.key ?? "").utf8)
        add((fetch.options.digest ?? "").utf8)
        add(fetch.options.redirect.rawValue.utf8)
        add(CollectionOfOne(fetch.options.isWarm ? 1 : 0))
    }

    private mutating func add(_ bytes: some Sequence<UInt8>) {
        for byte in bytes { value = (value ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        value = (value ^ 0x1ff) &* 0x0000_0100_0000_01b3
    }
}
