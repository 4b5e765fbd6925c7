import Foundation
import Testing

@testable import EarshotBroker
@testable import EarshotLoop

/// The socket for ZeroMQ peers: the order of its events, and its bounds.
struct StreamPortTests {
    private static let body = String(repeating: "x", count: 200_000)

    @Test func `a peer is reported with its first message, and its loss after its last`() throws {
        let rig = try PortRig()
        let peer = try rig.peer()
        peer.send("a", "b")
        #expect(try rig.reaches { rig.events.count == 3 })
        #expect(rig.port.pid(of: 1) == ProcessInfo.processInfo.processIdentifier)
        peer.send("c")
        rig.drop(peer)
        #expect(try rig.reaches { rig.events.last == "lost 1" })
        #expect(rig.events == ["connected 1", "message 1 a", "message 1 b", "message 1 c", "lost 1"])
        #expect(rig.send("x", to: 1) == .unreachable)
        #expect(rig.port.pid(of: 1) == 0)
    }

    @Test func `of a held peer nothing is read, and its loss is reported after the messages that it sent`() throws {
        let rig = try PortRig()
        let (first, second) = (try rig.peer(), try rig.peer())
        rig.heldAfter = "b"
        first.send("a", "b", "c")
        #expect(try rig.reaches { rig.events.last == "message 1 b" })
        first.send("d")
        rig.drop(first)
        second.send("e")
        #expect(try rig.reaches { rig.events.last == "message 2 e" })
        rig.heldAfter = nil
        #expect(try rig.reaches { rig.events.last == "lost 1" })
        #expect(rig.events.suffix(5) == ["connected 2", "message 2 e", "message 1 c", "message 1 d", "lost 1"])
    }

    @Test func `a peer that sent nothing is not reported`() throws {
        let rig = try PortRig()
        let silent = try rig.peer()
        #expect(silent.isOpen)
        rig.drop(silent)
        let next = try rig.peer()
        next.send("a")
        #expect(try rig.reaches { rig.events.count == 2 })
        #expect(rig.events == ["connected 2", "message 2 a"])
    }

    @Test func `replies reach their peer in order`() throws {
        let rig = try PortRig()
        let peers = try rig.greeted(2)
        for number in 0..<100 {
            for peer in 1...2 { #expect(rig.send("\(peer) \(number)", to: UInt64(peer)) == .sent) }
        }
        rig.port.flush()
        #expect(try rig.reaches { peers.allSatisfy { $0.heads.count == 100 } })
        #expect(peers[0].heads == (0..<100).map { "1 \($0)" })
        #expect(peers[1].heads == (0..<100).map { "2 \($0)" })
    }

    @Test func `at the limit a connection is closed, and its place is free once another one is lost`() throws {
        let rig = try PortRig(connectionLimit: 2)
        let peers = try rig.greeted(2)
        let third = try rig.peer()
        #expect(third.isEnded)
        rig.drop(peers[1])
        #expect(try rig.reaches { rig.events.last == "lost 2" })
        _ = try rig.greeted(1)
        #expect(rig.events.last == "message 3 hello")
        peers[0].send("again")
        #expect(try rig.reaches { rig.events.last == "message 1 again" })
    }

    @Test func `a peer has a turn of 32 messages before the next one has its own`() throws {
        let rig = try PortRig()
        let peers = try rig.greeted(2)
        rig.isTaking = false
        for _ in 0..<1_000 { peers[0].send("much") }
        peers[1].send("little")
        rig.isTaking = true
        #expect(try rig.reaches { rig.events.count == 1_005 })
        let place = try #require(rig.events.firstIndex { $0.hasSuffix("little") })
        // The busy peer has had one turn by then, or two if the kernel reported the other message later.
        #expect(place <= 4 + 2 * 32)
    }

    @Test func `a peer that does not read holds terminals and progress back, but no reply`() throws {
        var bounds = PortBounds.forClients
        bounds.maximumUnsentDeliveries = 4
        let rig = try PortRig(bounds)
        let peer = try rig.stopped()
        // The kernel accepts as much as its buffer holds.
        var sent = 0
        while sent < 1_000, rig.send(Self.body, to: 1, as: .terminal) == .sent { sent += 1 }
        #expect((4..<100).contains(sent))
        #expect(rig.send("p", to: 1, as: .progress) == .wouldBlock)
        #expect(!rig.port.hasRoom(for: 1))
        #expect(rig.send("reply", to: 1) == .sent)
        peer.isReading = true
        #expect(try rig.reaches { peer.heads.count == sent + 1 })
        #expect(peer.heads.last == "reply")
        #expect(rig.port.hasRoom(for: 1))
        #expect(rig.send("t", to: 1, as: .terminal) == .sent)
    }

    @Test func `a peer that does not read its replies is not read either`() throws {
        var bounds = PortBounds.forClients
        bounds.maximumUnreadReplies = 4
        let rig = try PortRig(bounds)
        let (peer, other) = (try rig.stopped(), try rig.greeted(1)[0])
        for _ in 0..<20 { _ = rig.send(Self.body, to: 1) }
        rig.port.flush()
        peer.send("question")
        other.send("question")
        #expect(try rig.reaches { rig.events.last == "message 2 question" })
        other.send("another")
        #expect(try rig.reaches { rig.events.last == "message 2 another" })
        #expect(!rig.events.contains("message 1 question"))
        peer.isReading = true
        #expect(try rig.reaches { rig.events.last == "message 1 question" })
        #expect(try rig.reaches { peer.heads.count == 20 })
    }

    @Test func `a reply beyond the bound of messages is refused, and a closed peer is lost without reading`() throws {
        var bounds = PortBounds.forClients
        bounds.maximumUnsentMessages = 20
        let rig = try PortRig(bounds)
        _ = try rig.stopped()
        var sent = 0
        // The kernel accepts as much as its buffer holds.
        while sent < 100, rig.send(Self.body, to: 1) == .sent {
            rig.port.flush()
            sent += 1
        }
        #expect((20..<100).contains(sent))
        rig.port.close(1)
        #expect(try rig.reaches { rig.events.last == "lost 1" })
    }

    @Test func `a connection without a message for a time is closed`() throws {
        var bounds = PortBounds.forClients
        #expect(bounds.firstMessageTimeout == .seconds(10))
        // Sufficient for the other one's message on a busy machine.
        bounds.firstMessageTimeout = .seconds(1)
        let rig = try PortRig(bounds)
        let other = try rig.peer()
        other.send("hello")
        #expect(try rig.reaches { rig.events.last == "message 1 hello" })
        let silent = try rig.peer()
        #expect(try rig.reaches { silent.isEnded })
        other.send("again")
        #expect(try rig.reaches { rig.events.last == "message 1 again" })
    }

    @Test func `all shortages of memory share one timer`() throws {
        let rig = try PortRig(PortBounds(maximumUnsentMessages: 100, incompleteFrameBytes: 100_000))
        let peers = try rig.greeted(2)
        let before = rig.loop.timerCount
        // A process holds at most half of the memory, so the second frame waits for the end of the first one.
        let length = 40_000
        let head: [UInt8] = [0x02, 0, 0, 0, 0, 0, 0, UInt8(length >> 8), UInt8(length & 0xff)]
        let frame = head + [UInt8](repeating: 0x61, count: length)
        var counts: Set<Int> = []
        for turn in 1...20 {
            // A frame that arrives whole needs no reservation.
            for peer in peers { #expect(peer.write(Array(frame.prefix(20_000)))) }
            _ = try rig.loop.run(for: .milliseconds(1)) { false }
            for peer in peers { #expect(peer.write(Array(frame.dropFirst(20_000)))) }
            #expect(try rig.reaches { rig.events.count == 4 + 2 * turn })
            counts.insert(rig.loop.timerCount - before)
        }
        #expect(counts.contains(1), "memory was short")
        #expect(counts.isSubset(of: [0, 1]))
    }

    @Test func `a socket whose file is gone is made again, and connections go on`() throws {
        let rig = try PortRig()
        let old = try rig.peer()
        old.send("hello")
        #expect(try rig.reaches { rig.events.count == 2 })
        #expect(rig.port.isInPlace)
        try FileManager.default.removeItem(atPath: rig.path)
        #expect(!rig.port.isInPlace)
        try rig.port.recreateListener()
        #expect(rig.port.isInPlace)
        let new = try rig.peer()
        new.send("hello")
        old.send("again")
        #expect(try rig.reaches { rig.events.count == 5 })
        #expect(Set(rig.events[2...]) == ["connected 2", "message 2 hello", "message 1 again"])
    }
}
