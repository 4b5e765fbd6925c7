import Cares
import Testing

@testable import TestPeers

/// Look-ups of names by a server, the hosts file and numeric text, and the end of a resolver.
@Suite struct ResolverTests {
    @Test func `a name is answered by the server with its addresses and their time`() throws {
        let loop = try TestLoop(.addresses([[192, 0, 2, 1], [192, 0, 2, 2]], timeToLive: 77))
        let addresses = try #require(try loop.lookUp("host.example")?.get())
        #expect(Set(addresses.map(\.text)) == ["192.0.2.1", "192.0.2.2"])
        #expect(addresses.allSatisfy { !$0.isIPv6 && $0.timeToLive == .seconds(77) })
        #expect(loop.server.questions.contains("host.example"))
    }

    @Test func `localhost comes from the hosts file and asks nobody`() throws {
        let loop = try TestLoop(.silence)
        let addresses = try #require(try loop.lookUp("localhost")?.get())
        #expect(addresses.contains { $0.text == "127.0.0.1" })
        #expect(loop.server.questions.isEmpty)
    }

    @Test func `an IPv6 address is its own answer`() throws {
        let loop = try TestLoop(.silence)
        let addresses = try #require(try loop.lookUp("2001:db8::1")?.get())
        #expect(addresses.map(\.text) == ["2001:db8::1"])
        #expect(addresses.map(\.isIPv6) == [true])
    }

    @Test(
        "a lookup that fails tells how",
        arguments: [
            (NameServer.Answer.noSuchName, LookupFailure.notFound),
            (.addresses([], timeToLive: 0), .notFound),
            (.serverFailure, .serverFailure),
            (.silence, .timeout),
        ])
    func failure(answer: NameServer.Answer, failure: LookupFailure) throws {
        let loop = try TestLoop(answer)
        #expect(loop.lookUp("host.example") == .failure(failure))
    }

    @Test func `after a lookup there is nothing to watch and nothing to wait for`() throws {
        let loop = try TestLoop(.noSuchName)
        _ = loop.lookUp("host.example")
        #expect(loop.interests.isEmpty)
        #expect(loop.resolver.timeoutMilliseconds == nil)
    }

    @Test func `a name with a NUL is no name`() throws {
        let loop = try TestLoop(.silence)
        #expect(loop.lookUp("localhost\0.example") == .failure(.notFound))
    }

    @Test func `a resolver that goes while a lookup runs ends it`() throws {
        var loop: TestLoop? = try TestLoop(.silence)
        loop?.resolver.resolve("host.example")
        weak let resolver = loop?.resolver
        loop = nil
        #expect(resolver == nil)
    }

    @Test func `a server that is no address is refused`() {
        let error = #expect(throws: CaresError.self) {
            try Resolver.make(options: ResolverOptions(servers: ["not an address"]))
        }
        #expect(error?.code == .badServers)
    }
}
