import EarshotCore
import RESP
import Testing

@testable import EarshotCluster

/// The question whether a majority of the sentinels is left.
@Suite struct PrimaryFinderTests {
    // Valid literals.
    private static let primary = EngineAddress("127.0.0.1:6379")!
    private static let sentinels = [26379, 26380, 26381].map { EngineAddress("127.0.0.1:\($0)")! }
    private static let address = Reply.array([.bytes(Array("127.0.0.1".utf8)), .bytes(Array("6379".utf8))])
    private static let subscription = Reply.array([.bytes(Array("subscribe".utf8)), .bytes([]), .integer(1)])

    private func tick(_ milliseconds: Int) -> Tick { Tick(nanoseconds: 0).advanced(byMilliseconds: milliseconds) }

    /// A finder that watches the first sentinel.
    private func watching(_ sentinels: [EngineAddress] = Self.sentinels) -> PrimaryFinder {
        var finder = PrimaryFinder(ClientRig.options(.sentinels(sentinels, primary: "bus")))
        #expect(finder.nextSentinel(now: tick(0)) == sentinels[0])
        #expect(!finder.opened(now: tick(0)).contains { $0.words.contains("ckquorum") })
        _ = finder.received(Self.address, now: tick(0))
        #expect(finder.received(Self.subscription, now: tick(0)) == .nothing)
        return finder
    }

    @Test(arguments: [
        (
            Reply.status("OK 3 usable Sentinels. Quorum and failover authorization can be reached"),
            PrimaryFinder.Finding.quorum(true)
        ),
        (.error("NOQUORUM 1 usable Sentinels. Not enough available Sentinels to reach the majority"), .quorum(false)),
        (.error("NOPERM this user has no permissions to run the 'sentinel|ckquorum' command"), .nothing),
        (.null, .nothing),
    ])
    func `another sentinel is asked, and watches from then on`(reply: Reply, finding: PrimaryFinder.Finding) {
        var finder = watching()
        let due = PrimaryFinder.quorumMilliseconds
        #expect(finder.queriesQuorum(now: tick(due - 1)) == false)
        #expect(finder.queriesQuorum(now: tick(due)) == true)
        finder.close()
        #expect(finder.nextSentinel(now: tick(due)) == Self.sentinels[1])
        #expect(
            finder.opened(now: tick(due)).map { Array($0.words.prefix(2)) }
                == [
                    ["SENTINEL", "get-master-addr-by-name"], ["SENTINEL", "ckquorum"], ["SUBSCRIBE", "+switch-master"],
                ])
        #expect(finder.received(Self.address, now: tick(due)) == .primary(Self.primary))
        #expect(finder.isQuery)
        #expect(finder.received(reply, now: tick(due)) == finding)
        #expect(finder.received(Self.subscription, now: tick(due)) == .nothing)
        #expect(finder.phase == .watching && !finder.areAllLost && !finder.isQuery)
        #expect(finder.queriesQuorum(now: tick(2 * due - 1)) == false)
        #expect(finder.queriesQuorum(now: tick(2 * due)) == true)
    }

    @Test func `a single sentinel is not left for a question`() {
        var finder = watching([Self.sentinels[0]])
        #expect(finder.queriesQuorum(now: tick(100_000)) == false)
    }

    @Test func `no sentinel that can be asked is none left`() {
        var finder = watching()
        finder.close()
        for count in 0..<3 {
            #expect(finder.areAllLost == false, "\(count)")
            _ = finder.nextSentinel(now: tick(0))
            finder.close()
        }
        #expect(finder.areAllLost)
    }
}
