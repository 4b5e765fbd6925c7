import Testing

@testable import Curl
@testable import TestPeers

/// libcurl stores addresses only for running transfers.
@Suite struct ResolvedNamesTests {
    private var names = ResolvedNames()

    @Test mutating func `an entry is removed by the next request once no transfer needs it`() {
        let (lines, first) = names.addEntries(["a.test:80:192.0.2.1"])
        #expect(lines == ["a.test:80:192.0.2.1"])
        let (others, second) = names.addEntries(["a.test:80:192.0.2.1,[2001:db8::1]"])
        #expect(others == ["a.test:80:192.0.2.1,[2001:db8::1]"])
        names.removeEntries(first, wasRun: true)
        #expect(names.addEntries([]).lines == [], "the second needs it")
        names.removeEntries(second, wasRun: true)
        #expect(names.addEntries(["b.test:80:192.0.2.1"]).lines == ["-a.test:80", "b.test:80:192.0.2.1"])
        #expect(names.addEntries([]).lines == [], "once")
    }

    @Test mutating func `an entry that the next request needs is not removed`() {
        for _ in 0..<3 {
            let (lines, use) = names.addEntries(["+a.test.:443:192.0.2.1", "a.test:443:192.0.2.1"])
            #expect(lines == ["a.test.:443:192.0.2.1", "a.test:443:192.0.2.1"])
            names.removeEntries(use, wasRun: true)
        }
        #expect(Set(names.addEntries([]).lines) == ["-a.test.:443", "-a.test:443"])
    }

    @Test mutating func `a transfer that was never run leaves all as it was`() {
        let (_, first) = names.addEntries(["a.test:80:192.0.2.1"])
        names.removeEntries(first, wasRun: true)
        let (lines, cancelled) = names.addEntries(["b.test:80:192.0.2.1"])
        #expect(lines.first == "-a.test:80")
        names.removeEntries(cancelled, wasRun: false)
        let (again, alsoCancelled) = names.addEntries(["a.test:80:192.0.2.1"])
        #expect(again == ["a.test:80:192.0.2.1"])
        names.removeEntries(alsoCancelled, wasRun: false)
        #expect(names.addEntries([]).lines == ["-a.test:80"])
    }

    @Test func `libcurl forgets an address with the last transfer that needs it`() throws {
        let origin = try LoopbackOrigin("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        let loop = try CurlTestLoop(origin: origin)
        // A name that libcurl resolves itself, so that a removed address shows at once.
        var request = TransferRequest(url: "http://a.localhost:\(origin.port)/")
        request.resolveEntries = ["a.localhost:\(origin.port):127.0.0.2"]
        let elsewhere = RecordingSink()
        #expect(try loop.fetch(request, sink: elsewhere)?.failure == .connectRefused)
        #expect(elsewhere.requestedAddresses == ["127.0.0.2"])
        request.resolveEntries = []
        let sink = RecordingSink()
        #expect(try loop.fetch(request, sink: sink)?.failure == nil)
        #expect(!sink.requestedAddresses.contains("127.0.0.2"))
    }
}
