internal import EarshotCore

/// URLs, origins and bodies of a simulated cluster, from which `ClusterTrial` takes its requests.
struct ClusterCatalogue {
    /// A response as one fetch received it. Its fields and its digest name the fetch.
    struct Content: Hashable {
        let key: Int
        let fetch: Int

        var sha256: String {
            let digits = String(key * 1_000_000_000 + fetch, radix: 16)
            return String(repeating: "0", count: 64 - digits.count) + digits
        }

        var headerFields: String { "x-key: \(key)\nx-fetch: \(fetch)" }

        init(key: Int, fetch: Int) {
            self.key = key
            self.fetch = fetch
        }

        /// Parses response fields; nil without the two fields.
        init?(headerFields: [UInt8]) {
            guard let key = Self.numberField("x-key: ", in: headerFields),
                let fetch = Self.numberField("x-fetch: ", in: headerFields)
            else {
                return nil
            }
            self.init(key: key, fetch: fetch)
        }

        private static func numberField(_ name: String, in bytes: [UInt8]) -> Int? {
            let name = Array(name.utf8)
            for line in bytes.split(separator: UInt8(ascii: "\n")) where line.starts(with: name) {
                return Int(String(decoding: line.dropFirst(name.count), as: UTF8.self))
            }
            return nil
        }
    }

    /// Number of keys that many clients request.
    static let keys = 100
    /// Keys that few clients request, so that a transfer may be for one request.
    static let rareKeys = 100...4_000
    static let originLimits = [1, 2, 3, 4, 2, 6]
    static let originSpacingsMilliseconds = [0, 0, 20, 0, 50, 0]
    static var origins: Int { originLimits.count }

    static func origin(of key: Int) -> Int { key % origins }

    static func url(of key: Int) -> String { "http://o\(origin(of: key)).test/\(key)" }

    /// The key of a URL; nil for a URL that the catalogue lacks.
    static func key(of url: String) -> Int? {
        url.utf8.lastIndex(of: UInt8(ascii: "/")).flatMap { Int(url[url.index(after: $0)...]) }
    }

    /// Key to which a response redirects; nil for none.
    static func redirectTarget(of key: Int) -> Int? { key % 17 == 3 ? key + 1 : nil }

    /// Key whose response answers a request.
    static func finalKey(of key: Int) -> Int { redirectTarget(of: key).map { finalKey(of: $0) } ?? key }

    static func bodyLength(of key: Int) -> Int { key % 23 == 5 ? 0 : key * 37 % 700 + 1 }

    /// Limits of the origins, the same in all nodes.
    static let originRules: OriginRules = {
        var rules = OriginRules()
        for number in 0..<origins {
            guard let pattern = OriginPattern("http://o\(number).test") else { preconditionFailure("a valid origin") }
            rules.rules[pattern] = OriginRules.RuleTerms(
                maximumTransfers: originLimits[number], spacingMilliseconds: originSpacingsMilliseconds[number])
        }
        return rules
    }()
}

extension ClusterCatalogue {
    /// Keys whose responses redirect to a key.
    static func sources(of key: Int) -> [Int] { redirectTarget(of: key - 1) == key ? [key - 1] : [] }
}
