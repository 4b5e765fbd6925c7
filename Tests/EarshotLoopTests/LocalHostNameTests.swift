import EarshotLoop
import Testing

/// Names of hosts, and their look-up by the system.
@Suite struct LocalHostNameTests {
    @Test(arguments: ["a", "redis-1", "redis_1", "redis.example", "1.example", "xn--bcher-kva.example"])
    func `a name is its text`(text: String) {
        #expect(HostName(text)?.description == text)
    }

    @Test(arguments: [
        "", ".", "a.", "a..b", "-a", "a b", "10.0.0.1", "10.0.0", "300.1", "1", "[::1]", "::1", "a:1", "b\u{fc}cher",
        String(repeating: "a", count: 64), String(repeating: "a.", count: 127) + "a",
    ])
    func `a numeric address, and a text of another form, is no name`(text: String) {
        #expect(HostName(text) == nil)
    }

    @Test func `a look-up ends on the loop with the addresses of the host`() throws {
        let loop = try EventLoop()
        let name = try #require(HostName("localhost"))
        var outcome: HostLookup.Outcome?
        let lookup = try HostLookup(name, on: loop) { outcome = $0 }
        #expect(try loop.run(for: .seconds(60)) { outcome != nil })
        let addresses = try #require(try outcome?.get())
        #expect(addresses.contains { ["127.0.0.1", "::1"].contains($0.description) })
        withExtendedLifetime(lookup) {}
    }
}
