import EarshotWire
import Testing

@testable import EarshotCore

/// Routes (proxies, CA files, client certificates), and sharing of cookie jars.
struct RouteTests {
    var rig = CoreRig()
    private var worker = WorkerID(rawValue: 0)

    private func field(_ job: Job, _ name: String) -> String? {
        String(decoding: job.httpFields, as: UTF8.self).split(separator: "\n")
            .first { $0.lowercased().hasPrefix(name + ": ") }.map { String($0.dropFirst(name.count + 2)) }
    }

    @Test mutating func `a job says the way that was asked for`() {
        _ = rig.worker()
        let a = rig.client(1)
        var route = Route()
        route.proxy = "http://p:1"
        route.caFile = "/ca"
        route.clientCertificate = "/c"
        route.clientKey = "/k"
        route.verifiesServer = false
        rig.pass { $0.fetch("h", "1", "http://o/", by: a) { $0.options.route = route } }
        #expect(rig.jobs.map(\.route) == [route])
    }

    @Test mutating func `each way has flights, and cool-downs, of its own`() {
        let worker = rig.worker()
        let a = rig.client(1)
        let ways: [(inout Route) -> Void] = [
            { _ in }, { $0.proxy = "none" }, { $0.proxy = "http://p:1" }, { $0.proxy = "http://u@p:1" },
            { $0.caFile = "/a" },
            { $0.caFile = "/b" }, { $0.clientCertificate = "/a" }, { $0.verifiesServer = false },
        ]
        rig.pass { rig in
            for (index, way) in ways.enumerated() {
                rig.fetch("h", "\(index)", "http://o/", by: a) { way(&$0.options.route) }
                rig.fetch("h", "\(index)-again", "http://o/", by: a) { way(&$0.options.route) }
            }
        }
        #expect(rig.core.ledger.flights.started == ways.count)
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 429, fields: "retry-after: 60") }
        #expect(rig.jobs.count == 1, "the refusal of one is not the others'")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a certificate is not shown to another origin, a proxy is used for it too`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass {
            $0.fetch("h", "1", "https://o/", by: a) {
                $0.options.route.clientCertificate = "/c"
                $0.options.route.proxy = "http://p:1"
            }
        }
        for target in ["https://o/b", "https://other/"] {
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: worker, status: 302, fields: "location: \(target)") }
            #expect(rig.jobs[0].route.clientCertificate == (target == "https://o/b" ? "/c" : nil))
            #expect(rig.jobs[0].route.proxy == "http://p:1")
        }
    }

    @Test mutating func `a proxy that is none ends the request`() {
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://o/", by: a) { $0.options.route.proxy = "http://p:0" } }
        #expect(rig.terminals(for: a) == ["h 1 malformed-url"])
    }

    // MARK: Cookies

    @Test mutating func `what a root's answers set goes out with its next requests that ask for it`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("one/x", "1", "http://o/", by: a) { $0.options.usesCookies = true } }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, fields: "Set-Cookie: a=1\nset-cookie: b=2; Path=/deep") }
        rig.pass { rig in
            for (index, handler) in ["one/y", "one", "two"].enumerated() {
                rig.fetch(handler, "\(index)", "http://o/", by: a) { $0.options.usesCookies = true }
            }
            rig.fetch("one", "plain", "http://o/plain", by: a)
            rig.fetch("one", "own", "http://o/own", by: a) {
                $0.options.usesCookies = true
                $0.httpFields = Array("cookie: c=3".utf8)
            }
        }
        #expect(rig.jobs.map { field($0, "cookie") } == ["a=1", nil, nil, "c=3"], "two of one root share a flight")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `each hop has the cookies that are for it`() {
        let worker = rig.worker()
        let a = rig.client(1)
        rig.pass { $0.fetch("one", "1", "http://o/", by: a) { $0.options.usesCookies = true } }
        var job = rig.jobs[0]
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: /b\nset-cookie: a=1") }
        job = rig.jobs[0]
        #expect(field(job, "cookie") == "a=1")
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: http://other/\nset-cookie: a=2") }
        job = rig.jobs[0]
        #expect(field(job, "cookie") == nil)
        rig.pass { $0.done(job, by: worker, status: 302, fields: "location: http://o/c") }
        #expect(field(rig.jobs[0], "cookie") == "a=2")
    }

    /// Runs a request of a root that receives a cookie. No subscriber is left afterwards.
    private mutating func visit(_ root: String, by client: ClientID, at worker: WorkerID) throws {
        rig.pass { $0.fetch(root, "1", "http://o/", by: client) { $0.options.usesCookies = true } }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.done(job, by: worker, fields: "set-cookie: \(root)=1") }
        let sequences = rig.actions.compactMap { action in
            if case .client(.deliverTerminal(_, let terminal, _)) = action { terminal.sequence } else { nil }
        }
        let sequence = try #require(sequences.first)
        rig.pass { rig in
            rig.send(.acknowledge(sequence), by: client)
            rig.send(.removeHandlers(HandlerPattern(root)!), by: client)
        }
        #expect(rig.core.isIdle && rig.core.records.handlers.rootCount == 0)
    }

    /// Returns the cookies that a root's next request sends, and removes that request.
    private mutating func cookies(of root: String, for client: ClientID) throws -> String? {
        rig.pass { $0.fetch(root, "2", "http://o/", by: client) { $0.options.usesCookies = true } }
        let found = field(try #require(rig.jobs.first), "cookie")
        let worker = worker
        let job = rig.jobs[0]
        rig.pass { $0.send(.removeHandlers(HandlerPattern(root)!), by: client) }
        rig.pass { $0.failed(job, "cancelled", by: worker) }
        #expect(rig.core.audit() == [])
        return found
    }

    @Test mutating func `a jar outlives the last handler of its root by a setting`() throws {
        rig.core.limits.idleCookieJarMilliseconds = 1_000
        worker = rig.worker()
        let a = rig.client(1)
        try visit("one", by: a, at: worker)
        rig.now = rig.now.advanced(byMilliseconds: 999)
        #expect(try cookies(of: "one", for: a) == "one=1")
        // The jar's time starts again, with one timer for all jars.
        rig.now = rig.now.advanced(byMilliseconds: 999)
        rig.pass { $0.core.timePassed(now: $0.now) }
        #expect(try cookies(of: "one", for: a) == "one=1")
        rig.now = rig.now.advanced(byMilliseconds: 1_000)
        rig.pass { $0.core.timePassed(now: $0.now) }
        #expect(try cookies(of: "one", for: a) == nil)
        #expect(rig.core.records.cookieJars.idleCount == 0)
    }

    @Test mutating func `a shorter time holds at once, and without one a jar goes with the last handler`() throws {
        worker = rig.worker()
        let a = rig.client(1)
        try visit("one", by: a, at: worker)
        #expect(rig.core.records.cookieJars.idleCount == 1)
        rig.pass { $0.send(.changeSetting(SettingWords(["cookie-time", "0"])!), by: a) }
        #expect(rig.core.records.cookieJars.idleCount == 0)
        try visit("one", by: a, at: worker)
        #expect(try cookies(of: "one", for: a) == nil)
    }

    @Test mutating func `there are so many bytes of jars, and the oldest without a handler makes room`() throws {
        rig.core.limits.maximumTotalCookieBytes = 1_800
        worker = rig.worker()
        let a = rig.client(1)
        try visit("one", by: a, at: worker)
        try visit("two", by: a, at: worker)
        #expect(try cookies(of: "one", for: a) == "one=1")
        try visit("three", by: a, at: worker)
        #expect(try cookies(of: "two", for: a) == nil)
        #expect(try cookies(of: "three", for: a) == "three=1")
        rig.pass { rig in
            for root in ["one", "two", "four", "five", "one/again"] {
                rig.fetch(root, "1", "http://o/", by: a) { $0.options.usesCookies = true }
            }
        }
        #expect(rig.terminals(for: a) == ["five 1 queue-full"])
        #expect(rig.core.records.cookieJars.idleCount == 0)
    }
}
