import EarshotCore
import EarshotHTTP
import Testing

/// Random bytes through every parser: nothing traps, and accepted input satisfies the parser's invariants.
@Suite struct HostileHTTPTests {
    /// Pieces with a meaning for parsers, so that random text reaches deep states.
    private static let pieces =
        [
            "http", "https", "HTTP", "thumb", ":", "//", "/", "@", "[", "]", "::", "1", "0x", "255", "4294967296", ".",
            "..", "/../", "%", "%2e", "?", "#", "\\", " ", "\n", "\r\n", "\t", "\u{0}", "é", "a.b",
            "example.org", ":80", ":443", "ffff:", "location: ", "authorization: ", "Mon, ", "Sunday, ", "06 Nov 1994",
            "06-Nov-94", " 08:49:37", " GMT", ",", "-", "99999999999999999999",
        ].map { Array($0.utf8) }

    private static func bytes(_ generator: inout SplitMix64Generator) -> [UInt8] {
        (0..<Int.random(in: 0...8, using: &generator)).flatMap { _ in
            if Int.random(in: 0..<8, using: &generator) == 0 { return [UInt8.random(in: 0...255, using: &generator)] }
            return pieces.randomElement(using: &generator) ?? []
        }
    }

    private static func text(_ generator: inout SplitMix64Generator) -> String {
        String(decoding: bytes(&generator), as: UTF8.self)
    }

    @Test(arguments: 0..<8 as Range<UInt64>)
    func `a URL that is taken is clean and its own normal form`(_ seed: UInt64) {
        var generator = SplitMix64Generator(seed: seed)
        var taken = 0
        for _ in 0..<5_000 {
            let prefix = ["", "http://", "thumb:", "x://"].randomElement(using: &generator) ?? ""
            let text = prefix + Self.text(&generator)
            guard let url = try? FetchURL(text) else { continue }
            taken += 1
            let isClean = url.description.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != 0x5c && $0 != 0x23 }
            let again = try? FetchURL(url.description)
            let parts = [url.userinfo ?? "", url.host, url.path, url.query ?? ""].map(\.utf8.count).reduce(0, +)
            let whole =
                again == url && again?.origin == url.origin && again?.path == url.path && again?.query == url.query
            if !isClean || !whole || parts >= url.description.utf8.count || (url.isHTTP && url.host.isEmpty)
                || url.redacted.utf8.contains(0x40) && !url.path.utf8.contains(0x40)
            {
                Issue.record("seed \(seed): \(text.debugDescription) gave \(url)")
            }
            if let next = try? url.resolve(Self.text(&generator)), (try? FetchURL(next.description)) != next {
                Issue.record("seed \(seed): \(url) resolved to \(next)")
            }
        }
        #expect(taken > 500, "the generator makes too few URLs to test anything")
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `fields that are taken can be neither split nor framed`(_ seed: UInt64) {
        var generator = SplitMix64Generator(seed: seed)
        var taken = 0
        for _ in 0..<5_000 {
            let lines = Self.bytes(&generator)
            var fields = HeaderFields(lines: lines)
            let all = Array(fields)
            _ = fields.canonicalBytes
            fields.removeAll(named: "location")
            #expect(fields.map(\.name) == all.filter { !$0.isNamed("location") }.map(\.name), "seed \(seed): \(lines)")
            if let request = try? HeaderFields(request: lines) {
                let count = lines.isEmpty || lines == [0x0a] ? 0 : request.bytes.split(separator: 0x0a).count
                #expect(request.map(\.name).count == count, "seed \(seed): \(lines)")
            }
            var one = HeaderFields()
            if (try? one.append(Self.text(&generator), Self.text(&generator))) != nil {
                taken += 1
                #expect(Array(one).count == 1 && !one.bytes.contains(0x0a), "seed \(seed): \(one.bytes)")
            }
        }
        #expect(taken > 25, "the generator makes too few fields to test anything")
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `no answer of a server makes a rule trap`(_ seed: UInt64) throws {
        var generator = SplitMix64Generator(seed: seed)
        let request = HTTPRequest(
            url: try FetchURL("https://u:p@a.example/x"), fields: HeaderFields(lines: Array("cookie: c".utf8)))
        var followed = 0
        for _ in 0..<5_000 {
            let response = HeaderFields(lines: Array("location: ".utf8) + Self.bytes(&generator))
            let outcome = RedirectRule().outcome(
                status: 302, response: response, request: request, hops: 0, ancestors: [])
            guard case .follow(let next) = outcome else { continue }
            followed += 1
            let isSame = next.url.origin == request.url.origin
            #expect(next.fields.contains("cookie") == isSame && next.url.hasUserinfo == isSame)
        }
        #expect(followed > 250, "the generator makes too few redirects to test anything")
    }

    @Test func `no text makes a date, an address or a method trap`() {
        var generator = SplitMix64Generator(seed: 7231)
        for _ in 0..<10_000 {
            let text = Self.text(&generator)
            let now = Int64(bitPattern: generator.next())
            if let wait = RetryAfter(text, now: now) {
                #expect((0...HTTPLimits.retryAfterSeconds).contains(wait.seconds))
            }
            _ = HTTPDate(text, now: now)
            if let address = IPAddress(text) { #expect(IPAddress(address.description) == address) }
            _ = HTTPMethod(text)
            _ = FailureCode(rawValue: text)
        }
    }

    @Test func `a broken date is read or refused, whichever byte is broken`() {
        var generator = SplitMix64Generator(seed: 850)
        let dates = [
            "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
        ].map { Array($0.utf8) }
        for date in dates {
            for index in date.indices {
                for byte in UInt8.min...UInt8.max {
                    var broken = date
                    broken[index] = byte
                    _ = HTTPDate(String(decoding: broken, as: UTF8.self), now: Int64(bitPattern: generator.next()))
                }
                _ = HTTPDate(String(decoding: date[..<index], as: UTF8.self), now: 0)
            }
        }
    }
}
