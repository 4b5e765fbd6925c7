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
        #expect(table.requested("a", by: 1, now: Self.start) == .lookUp)
        #expect(table.requested("a", by: 2, now: Self.start) == .wait)
        #expect(table.requested("b", by: 3, now: Self.start) == .lookUp)
        #expect(table.answered("a", Self.known, lifetime: .seconds(9), now: Self.start) == [1, 2])
        #expect(table.requested("a", by: 4, now: time(8)) == .known(Self.known))
    }

    @Test func `an answer is forgotten when its time is over`() {
        var table = NameTable<Int>()
        _ = table.requested("a", by: 1, now: Self.start)
        _ = table.answered("a", .unknown, lifetime: .seconds(5), now: Self.start)
        #expect(table.requested("a", by: 2, now: time(4)) == .known(.unknown))
        #expect(table.requested("a", by: 2, now: time(5)) == .lookUp)
    }

    @Test(arguments: [(0, 1), (1, 1), (300, 300), (3_600, 3_600), (3_601, 3_600)])
    func `an answer is kept for its time to live, from a second to an hour`(timeToLive: Int, lifetime: Int) {
        #expect(Names.lifetime(.seconds(timeToLive)) == .seconds(lifetime))
    }

    @Test func `who withdrew is not told, and the lookup goes on for others`() {
        var table = NameTable<Int>()
        _ = table.requested("a", by: 1, now: Self.start)
        table.withdrawn("a", by: 1)
        #expect(table.requested("a", by: 2, now: Self.start) == .wait)
        #expect(table.answered("a", .failed, lifetime: .seconds(1), now: Self.start) == [2])
    }

    @Test func `beyond the limit of lookups without waiters the last waiter stays until the answer`() {
        var table = NameTable<Int>(abandonLimit: 2)
        for (waiter, name) in ["a", "b", "c", "d"].enumerated() {
            #expect(table.requested(name, by: waiter, now: Self.start) == .lookUp, "all lookups with waiters run")
            #expect(table.mayWithdraw(name, by: waiter) == (waiter < 2))
            if waiter < 2 { table.withdrawn(name, by: waiter) }
        }
        #expect(table.requested("d", by: 5, now: Self.start) == .wait)
        #expect(table.mayWithdraw("d", by: 3) && !table.mayWithdraw("c", by: 2), "another one waits for it")
        table.withdrawn("d", by: 7)
        #expect(table.requested("a", by: 6, now: Self.start) == .wait)
        #expect(table.mayWithdraw("c", by: 2), "one has a waiter again")
        table.withdrawn("c", by: 2)
        #expect(!table.mayWithdraw("a", by: 6))
        #expect(table.answered("b", .failed, lifetime: .seconds(9), now: Self.start) == [])
        #expect(table.mayWithdraw("a", by: 6), "one has ended")
        #expect(table.answered("a", Self.known, lifetime: .seconds(9), now: Self.start) == [6])
        table.withdrawn("a", by: 6)
        #expect(table.answered("d", Self.known, lifetime: .seconds(9), now: Self.start) == [3, 5])
    }

    @Test func `the oldest answers make room`() {
        var table = NameTable<Int>(limit: 2)
        for name in ["a", "b", "c"] { _ = table.answered(name, Self.known, lifetime: .seconds(9), now: Self.start) }
        #expect(table.count == 2)
        #expect(table.requested("a", by: 1, now: Self.start) == .lookUp)
        #expect(table.requested("c", by: 1, now: Self.start) == .known(Self.known))
    }

    @Test(arguments: ["localhost", "localhost.", "a.b.localhost"])
    func `localhost is this machine`(name: String) {
        #expect(NameAnswer.special(name) == .addresses(["127.0.0.1", "::1"]))
    }

    @Test func `invalid does not exist and other names are not special`() {
        #expect(NameAnswer.special("a.invalid.") == .unknown)
        #expect(NameAnswer.special("notlocalhost") == nil)
        #expect(NameAnswer.special("localhost.example") == nil)
        #expect(NameAnswer.special(".") == nil)
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
        #expect(Printable.sentence("a\u{1b}[1m\nb\u{e9}") == "a?[1m?b??")
        #expect(Printable.sentence(String(repeating: "x", count: 900)).count == Limits.sentenceBytes)
    }
}
