import EarshotLoop
import Testing

@testable import EarshotWorker

/// Cached and shared look-ups of names.
@Suite struct NameTests {
    static let known = NameAnswer.addresses(["192.0.2.1"])
    static let start = LoopTime(nanoseconds: 0)

    private func time(_ seconds: Int) -> LoopTime { Self.start.advanced(by: .seconds(seconds)) }

    @Test func `the first who asks starts a lookup and the others wait`() {
        var table = NameTable<Int>()
        #expect(table.requestLookup("a", by: 1, now: Self.start) == .startLookup)
        #expect(table.requestLookup("a", by: 2, now: Self.start) == .waitForLookup)
        #expect(table.requestLookup("b", by: 3, now: Self.start) == .startLookup)
        #expect(table.recordAnswer(for: "a", answer: Self.known, lifetime: .seconds(9), now: Self.start) == [1, 2])
        #expect(table.requestLookup("a", by: 4, now: time(8)) == .cachedAnswer(Self.known))
    }

    @Test func `an answer is forgotten when its time is over`() {
        var table = NameTable<Int>()
        _ = table.requestLookup("a", by: 1, now: Self.start)
        _ = table.recordAnswer(for: "a", answer: .nameNotFound, lifetime: .seconds(5), now: Self.start)
        #expect(table.requestLookup("a", by: 2, now: time(4)) == .cachedAnswer(.nameNotFound))
        #expect(table.requestLookup("a", by: 2, now: time(5)) == .startLookup)
    }

    @Test(arguments: [(0, 1), (1, 1), (300, 300), (3_600, 3_600), (3_601, 3_600)])
    func `an answer is kept for its time to live, from a second to an hour`(timeToLive: Int, lifetime: Int) {
        #expect(Names.cacheLifetime(timeToLive: .seconds(timeToLive)) == .seconds(lifetime))
    }

    @Test func `who withdrew is not told, and the lookup goes on for others`() {
        var table = NameTable<Int>()
        _ = table.requestLookup("a", by: 1, now: Self.start)
        table.removeWaiter("a", by: 1)
        #expect(table.requestLookup("a", by: 2, now: Self.start) == .waitForLookup)
        #expect(table.recordAnswer(for: "a", answer: .lookupFailed, lifetime: .seconds(1), now: Self.start) == [2])
    }

    @Test func `beyond the limit of lookups without waiters the last waiter stays until the answer`() {
        var table = NameTable<Int>(maximumAbandonedLookups: 2)
        for (waiter, name) in ["a", "b", "c", "d"].enumerated() {
            #expect(
                table.requestLookup(name, by: waiter, now: Self.start) == .startLookup, "all lookups with waiters run")
            #expect(table.mayWithdrawWaiter(name, by: waiter) == (waiter < 2))
            if waiter < 2 { table.removeWaiter(name, by: waiter) }
        }
        #expect(table.requestLookup("d", by: 5, now: Self.start) == .waitForLookup)
        #expect(table.mayWithdrawWaiter("d", by: 3) && !table.mayWithdrawWaiter("c", by: 2), "another one waits for it")
        table.removeWaiter("d", by: 7)
        #expect(table.requestLookup("a", by: 6, now: Self.start) == .waitForLookup)
        #expect(table.mayWithdrawWaiter("c", by: 2), "one has a waiter again")
        table.removeWaiter("c", by: 2)
        #expect(!table.mayWithdrawWaiter("a", by: 6))
        #expect(table.recordAnswer(for: "b", answer: .lookupFailed, lifetime: .seconds(9), now: Self.start) == [])
        #expect(table.mayWithdrawWaiter("a", by: 6), "one has ended")
        #expect(table.recordAnswer(for: "a", answer: Self.known, lifetime: .seconds(9), now: Self.start) == [6])
        table.removeWaiter("a", by: 6)
        #expect(table.recordAnswer(for: "d", answer: Self.known, lifetime: .seconds(9), now: Self.start) == [3, 5])
    }

    @Test func `the oldest answers make room`() {
        var table = NameTable<Int>(maximumAnswers: 2)
        for name in ["a", "b", "c"] {
            _ = table.recordAnswer(for: name, answer: Self.known, lifetime: .seconds(9), now: Self.start)
        }
        #expect(table.count == 2)
        #expect(table.requestLookup("a", by: 1, now: Self.start) == .startLookup)
        #expect(table.requestLookup("c", by: 1, now: Self.start) == .cachedAnswer(Self.known))
    }

    @Test(arguments: ["localhost", "localhost.", "a.b.localhost"])
    func `localhost is this machine`(name: String) {
        #expect(NameAnswer.specialUseAnswer(forName: name) == .addresses(["127.0.0.1", "::1"]))
    }

    @Test func `invalid does not exist and other names are not special`() {
        #expect(NameAnswer.specialUseAnswer(forName: "a.invalid.") == .nameNotFound)
        #expect(NameAnswer.specialUseAnswer(forName: "notlocalhost") == nil)
        #expect(NameAnswer.specialUseAnswer(forName: "localhost.example") == nil)
        #expect(NameAnswer.specialUseAnswer(forName: ".") == nil)
    }

    @Test func `addresses are given to libcurl by host and port, IPv6 in brackets`() {
        #expect(
            NameAnswer.resolveEntries(host: "a.example", port: 80, ["192.0.2.1", "2001:db8::1"])
                == ["a.example:80:192.0.2.1,[2001:db8::1]"])
        #expect(
            NameAnswer.resolveEntries(host: "a.example.", port: 443, ["192.0.2.1"])
                == ["a.example.:443:192.0.2.1", "a.example:443:192.0.2.1"])
    }

    @Test func `text from outside is made printable and short`() {
        #expect(Printable.sanitizedSentence("a\u{1b}[1m\nb\u{e9}") == "a?[1m?b??")
        #expect(Printable.sanitizedSentence(String(repeating: "x", count: 900)).count == Limits.sentenceBytes)
    }
}
