import Glibc
import Testing

@testable import EarshotLoop

/// Lines between two processes; here both ends are in one.
struct LineChannelTests {
    @Test func `lines arrive apart and in order both ways`() throws {
        let loop = try EventLoop()
        let ends = try LineChannel.makePair()
        var received: [String] = []
        var answered: [String] = []
        let own = try LineChannel(ends.own, loop: loop) { answered.append($0) }
        let other = try LineChannel(ends.child, loop: loop) { received.append($0) }
        own.send(["one", "two words", "three"])
        other.send(["yes"])
        #expect(try loop.run(for: .seconds(60)) { received.count == 3 && answered.count == 1 })
        #expect(received == ["one", "two words", "three"])
        #expect(answered == ["yes"])
    }

    @Test func `what the other end does not take is kept and told when it has left`() throws {
        let loop = try EventLoop()
        let ends = try LineChannel.makePair()
        let own = try LineChannel(ends.own, loop: loop) { _ in }
        var hadRoom = false
        own.onBacklogSent = { hadRoom = true }
        let lines = (0..<200).map { "\($0) " + String(repeating: "x", count: 10_000) }
        own.send(lines)
        #expect(own.hasBacklog && !hadRoom)
        var received: [String] = []
        let other = try LineChannel(ends.child, loop: loop) { received.append($0) }
        #expect(try loop.run(for: .seconds(60)) { received.count == lines.count })
        #expect(received == lines)
        #expect(hadRoom && !own.hasBacklog)
        withExtendedLifetime(other) {}
    }

    @Test func `the last lines of an end that is gone are taken and nothing breaks after them`() throws {
        let loop = try EventLoop()
        let ends = try LineChannel.makePair()
        var received: [String] = []
        let own = try LineChannel(ends.own, loop: loop) { received.append($0) }
        do {
            let other = try LineChannel(ends.child, loop: loop) { _ in }
            other.send(["a", "b"])
        }
        own.deliverPendingLines()
        #expect(received == ["a", "b"])
        own.send(["c"])
        #expect(!own.hasBacklog)
    }

    @Test func `a process without a loop sends a line`() throws {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        LineChannel.send("two words", to: ends.own)
        close(ends.own)
        #expect(LineChannel.awaitLine(ends.child) == "two words")
        #expect(LineChannel.awaitLine(ends.child) == nil)
    }

    @Test func `a process without a loop waits for a line and hears of the end`() throws {
        let loop = try EventLoop()
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        do {
            let own = try LineChannel(ends.own, loop: loop) { _ in }
            own.send(["a"])
        }
        #expect(LineChannel.awaitLine(ends.child) == "a")
        #expect(LineChannel.awaitLine(ends.child) == nil)
    }
}
