import EarshotCore
import RESP
import Testing

@testable import EarshotCluster

/// The question whether a majority of the sentinels is left.
@Suite struct PrimaryFinderTests {
    // Valid literals.
    private static let primary = EngineAddress("127.0.0.1:6379")!
    private static let sentinels = [26379, 26380, 26381].map { EngineAddress("127.0.0.1:\($0)")! }
    private static let address = Reply.array([.bulkString(Array("127.0.0.1".utf8)), .bulkString(Array("6379".utf8))])
    private static let subscription = Reply.array([.bulkString(Array("subscribe".utf8)), .bulkString([]), .integer(1)])

    private func tick(_ milliseconds: Int) -> MonotonicTime {
        MonotonicTime(nanoseconds: 0).advanced(byMilliseconds: milliseconds)
    }

    /// A finder that watches the first sentinel.
    private func watching(_ sentinels: [EngineAddress] = Self.sentinels) -> PrimaryFinder {
        var finder = PrimaryFinder(ClientRig.options(.sentinels(sentinels, primary: "bus")))
        #expect(finder.nextSentinel(now: tick(0)) == sentinels[0])
        #expect(!finder.connectionOpened(now: tick(0)).contains { $0.words.contains("ckquorum") })
        _ = finder.receivedReply(Self.address, now: tick(0))
        #expect(finder.receivedReply(Self.subscription, now: tick(0)) == .nothing)
        return finder
    }

    @Test(arguments: [
        (
            Reply.status("OK 3 usable Sentinels. Quorum and failover authorization can be reached"),
            PrimaryFinder.Finding.quorumReachable(true)
        ),
        (
            .error("NOQUORUM 1 usable Sentinels. Not enough available Sentinels to reach the majority"),
            .quorumReachable(false)
        ),
        (.error("NOPERM this user has no permissions to run the 'sentinel|ckquorum' command"), .nothing),
        (.null, .nothing),
    ])
    func `another sentinel is asked, and watches from then on`(reply: Reply, finding: PrimaryFinder.Finding) {
        var finder = watching()
        let due = PrimaryFinder.quorumCheckIntervalMilliseconds
        #expect(finder.mustCheckQuorum(now: tick(due - 1)) == false)
        #expect(finder.mustCheckQuorum(now: tick(due)) == true)
        finder.close()
        #expect(finder.nextSentinel(now: tick(due)) == Self.sentinels[1])
        #expect(
            finder.connectionOpened(now: tick(due)).map { Array($0.words.prefix(2)) }
                == [
                    ["SENTINEL", "get-master-addr-by-name"], ["SENTINEL", "ckquorum"], ["SUBSCRIBE", "+switch-master"],
                ])
        #expect(finder.receivedReply(Self.address, now: tick(due)) == .primary(Self.primary))
        #expect(finder.isReplacementConnection)
        #expect(finder.receivedReply(reply, now: tick(due)) == finding)
        #expect(finder.receivedReply(Self.subscription, now: tick(due)) == .nothing)
        #expect(finder.phase == .watching && !finder.areAllSentinelsUnreachable && !finder.isReplacementConnection)
        #expect(finder.mustCheckQuorum(now: tick(2 * due - 1)) == false)
        #expect(finder.mustCheckQuorum(now: tick(2 * due)) == true)
    }

    @Test func `a single sentinel is not left for a question`() {
        var finder = watching([Self.sentinels[0]])
        #expect(finder.mustCheckQuorum(now: tick(100_000)) == false)
    }

    @Test func `no sentinel that can be asked is none left`() {
        var finder = watching()
        finder.close()
        for count in 0..<3 {
            #expect(finder.areAllSentinelsUnreachable == false, "\(count)")
            _ = finder.nextSentinel(now: tick(0))
            finder.close()
        }
        #expect(finder.areAllSentinelsUnreachable)
    }
}
