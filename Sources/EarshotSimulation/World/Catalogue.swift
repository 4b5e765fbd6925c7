internal import EarshotWire

/// Names of a world, created once: handlers, request IDs, URLs and their contents.
struct Catalogue {
    let handlers: [HandlerID]
    /// Patterns of handlers and subtrees.
    let handlerPatterns: [HandlerPattern]
    let requests: [RequestID]
    let urls: [String]
    let bodyDigests: [String]
    let originCount: Int
    /// Number of schemes of users' workers.
    let userSchemeCount: Int
    let handlerIndices: [HandlerID: Int]
    let requestNumbers: [RequestID: Int]

    init(_ setting: Setting) {
        originCount = setting.originCount
        userSchemeCount = setting.userSchemeCount
        let roots = max(1, setting.handlerCount / 10)
        let names = (0..<setting.handlerCount).map { number in
            switch number % 10 {
            case 0: "r\(number % roots)/h\(number)"
            case 1: "r\(number % roots)/deep/h\(number)"
            case 2: "single\(number)"
            default: "r\(number % roots)/s\(number % 3)/h\(number)"
            }
        }
        handlers = names.compactMap(HandlerID.init)
        let subtrees = (0..<roots).flatMap { ["r\($0)/", "r\($0)/s1/", "r\($0)/deep/"] }
        handlerPatterns = (names + subtrees).compactMap(HandlerPattern.init)
        requests = (0..<setting.requestIDsPerHandler).compactMap { RequestID("q\($0)") }
        handlerIndices = Dictionary(uniqueKeysWithValues: zip(handlers, handlers.indices))
        requestNumbers = Dictionary(uniqueKeysWithValues: zip(requests, requests.indices))
        urls = (0..<setting.keyCount).map { Self.url($0, setting) }
        bodyDigests = (0..<setting.keyCount).map { key in
            let digits = String(key, radix: 16)
            return String(repeating: "0", count: 64 - digits.utf8.count) + digits
        }
    }

    private static func url(_ key: Int, _ setting: Setting) -> String {
        guard isServedByUserWorkers(key, setting.userSchemeCount) else {
            return "http://o\(key % setting.originCount).test/\(key)"
        }
        return "own\(key % setting.userSchemeCount):" + (key % 3 == 0 ? "p/\(key)" : "//h\(key % 2)/\(key)")
    }

    private static func isServedByUserWorkers(_ key: Int, _ schemes: Int) -> Bool { schemes > 0 && key / 10 % 4 == 3 }

    /// Returns the number of a web URL's origin; nil for a URL served by users' workers.
    func origin(of key: Int) -> Int? { Self.isServedByUserWorkers(key, userSchemeCount) ? nil : key % originCount }

    /// Returns the length of a URL's body in bytes.
    func bodyLength(of key: Int) -> Int { 10 + key * 37 % 500 }

    /// Returns whether a body is stored in the spool.
    func isStoredInSpool(_ key: Int) -> Bool { key % 9 == 0 }

    /// Returns the redirect mode, which the key's last digit determines, so that a JOB identifies its flight.
    func redirectMode(of key: Int) -> RedirectMode {
        switch key % 10 {
        case 8: .manual
        case 9: .error
        default: .follow
        }
    }

    /// Returns the cache mode of requests for a URL. Redirects lead only to URLs of mode `default`, so flights are not
    /// shared between modes.
    func cacheMode(of key: Int) -> CacheMode {
        guard key % 10 == 7, origin(of: key) != nil else { return .default }
        return [.default, .explicit, .noStore, .reload, .noCache, .forceCache][key / 10 % 6]
    }

    /// Returns whether requests for a URL have `errors: deliver`. No redirect leads to one.
    func deliversErrors(of key: Int) -> Bool { key % 10 == 6 && origin(of: key) != nil }

    /// Returns whether responses have an entity tag with which requests are conditional. No such body is resumed.
    func hasEntityTag(_ key: Int) -> Bool { key % 10 == 0 && !isStoredInSpool(key) && origin(of: key) != nil }

    /// Returns whether requests have a cache mode. No redirect leads to such a URL.
    func hasCacheMode(_ key: Int) -> Bool { key % 10 == 7 }

    /// Returns the redirect target of a URL; nil without one. Targets are also requested directly.
    func redirectTarget(of key: Int, _ random: inout SeededGenerator) -> String? {
        switch key % 10 {
        case 1: return urls[(key + 1) % urls.count]
        case 2 where key / 10 % 3 == 0: return urls[key - 1]
        case 2 where key / 10 % 3 == 1:
            return random.boolean(perMille: 100)
                ? "ftp://o.test/1" : random.boolean(perMille: 100) ? urls[key] : defaultModeURL(key + 10)
        case 2, 3: return defaultModeURL(random.number(below: urls.count))
        case 8, 9: return random.boolean(perMille: 500) ? defaultModeURL(key) : nil
        default: return nil
        }
    }

    private func defaultModeURL(_ key: Int) -> String {
        let key = key % urls.count
        return urls[key % 10 > 5 ? key - key % 10 : key]
    }
}
