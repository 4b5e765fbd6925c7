import EarshotLoop
import Testing

@testable import EarshotWorker

@Suite struct NameTests {
    static let known = NameAnswer.addresses(["192.0.2.1"])
    static let start = LoopTime(nanoseconds: 0)

    private func time(_ seconds: Int) -> LoopTime { Self.start.advanced(by: .seconds(seconds)) }

    @Test func `the first who asks starts a lookup and the others wait`() {
        var table = NameTable<Int>()
        #expect(table.asked("a", by: 1, now: Self.start) == .lookUp)
        #expect(table.asked("a", by: 2, now: Self.start) == .wait)
        #expect(table.asked("b", by: 3, now: Self.start) == .lookUp)
        #expect(table.answered("a", Self.known, lifetime: .seconds(9), now: Self.start) == [1, 2])
        #expect(table.asked("a", by: 4, now: time(8)) == .known(Self.known))
    }

    @Test func `an answer is forgotten when its time is over`() {
        var table = NameTable<Int>()
        _ = table.asked("a", by: 1, now: Self.start)
        _ = table.answered("a", .unknown, lifetime: .seconds(5), now: Self.start)
        #expect(table.asked("a", by: 2, now: time(4)) == .known(.unknown))
        #expect(table.asked("a", by: 2, now: time(5)) == .lookUp)
    }

    @Test func `who withdrew is not told, and the lookup goes on for others`() {
        var table = NameTable<Int>()
        _ = table.asked("a", by: 1, now: Self.start)
        table.withdrawn("a", by: 1)
        #expect(table.asked("a", by: 2, now: Self.start) == .wait)
        #expect(table.answered("a", .failed, lifetime: .seconds(1), now: Self.start) == [2])
    }

    @Test func `lookups beyond the limit wait for others, and leave with their last waiter`() {
        var table = NameTable<Int>(lookupLimit: 2)
        for (waiter, name) in ["a", "b"].enumerated() {
            #expect(table.asked(name, by: waiter, now: Self.start) == .lookUp)
            table.withdrawn(name, by: waiter)
        }
        for (waiter, name) in ["c", "d", "e", "c"].enumerated() {
            #expect(table.asked(name, by: waiter, now: Self.start) == .wait)
        }
        #expect(table.nextLookup() == nil, "two run, although no job waits for them")
        table.withdrawn("d", by: 1)
        table.withdrawn("c", by: 0)
        #expect(table.asked("a", by: 7, now: Self.start) == .wait)
        #expect(table.answered("a", Self.known, lifetime: .seconds(9), now: Self.start) == [7])
        #expect(table.nextLookup() == "c")
        #expect(table.nextLookup() == nil)
        #expect(table.answered("b", Self.known, lifetime: .seconds(9), now: Self.start) == [])
        #expect(table.nextLookup() == "e", "the other one was withdrawn")
        #expect(table.answered("c", .failed, lifetime: .seconds(9), now: Self.start) == [3])
        #expect(table.answered("e", .failed, lifetime: .seconds(9), now: Self.start) == [2])
        #expect(table.asked("d", by: 1, now: Self.start) == .lookUp)
    }

    @Test func `the oldest answers make room`() {
        var table = NameTable<Int>(limit: 2)
        for name in ["a", "b", "c"] { _ = table.answered(name, Self.known, lifetime: .seconds(9), now: Self.start) }
        #expect(table.count == 2)
        #expect(table.asked("a", by: 1, now: Self.start) == .lookUp)
        #expect(table.asked("c", by: 1, now: Self.start) == .known(Self.known))
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
