import EarshotLoop
import Testing

@testable import ZMTP

/// Streams with shared memory, and raw sockets at their other ends.
@Suite struct ConnectionMemoryTests {
    static let frame = 100_000

    /// Writes the header of a frame of 100,000 bytes, and its first `count` bytes.
    private func begin(_ pair: StreamPair, count: Int = 60_000) throws {
        try pair.write([2, 0, 0, 0, 0, 0, 1, 0x86, 0xa0] + [UInt8](repeating: 7, count: count))
        try pair.pass()
    }

    private func end(_ pair: StreamPair, from count: Int = 60_000) throws {
        try pair.write([UInt8](repeating: 7, count: Self.frame - count))
        try pair.pass()
    }

    @Test func `a long frame is read when there is room for all of it`() throws {
        let memory = ConnectionMemory(frameCapacity: 2 * Self.frame)
        let pairs = try (0..<3).map { try StreamPair.open(memory: memory, owner: Int32($0)) }
        for pair in pairs { try begin(pair) }
        #expect(memory.reservedBytes == 2 * Self.frame)
        #expect(memory.isMemoryShort)
        #expect(pairs.map(\.stream.awaitsMemory) == [false, false, true])
        #expect(pairs[2].stream.partialFrame == nil)
        #expect(pairs[2].stream.reservedAt == nil)
        // The first one completes, and the third one continues.
        try end(pairs[0])
        #expect(pairs[0].messages.map(\.head.count) == [Self.frame])
        #expect(!memory.isMemoryShort)
        try pairs[2].pass()
        try end(pairs[2])
        #expect(pairs[2].messages == pairs[0].messages)
        try end(pairs[1])
        #expect(memory.reservedBytes == 0)
    }

    @Test func `one owner has half of the room at most, and its last frame does not delay another's first`() throws {
        let memory = ConnectionMemory(frameCapacity: 4 * Self.frame)
        let greedy = try (0..<5).map { _ in try StreamPair.open(memory: memory, owner: 1) }
        for pair in greedy { try begin(pair) }
        #expect(greedy.map(\.stream.awaitsMemory) == [false, false, true, true, true])
        let other = try StreamPair.open(memory: memory, owner: 2)
        try begin(other)
        #expect(!other.stream.awaitsMemory)
        try end(other)
        #expect(other.messages.count == 1)
        #expect(memory.reservedBytes == 2 * Self.frame)
    }

    @Test func `all processes of a user have a quarter of the room, and the administrator leaves a quarter`() throws {
        let memory = ConnectionMemory(frameCapacity: 8 * Self.frame)
        memory.hasOtherUsers = true
        func begun(_ count: Int32, from process: Int32, of user: UInt32?) throws -> [StreamPair] {
            let pairs = try (0..<count).map { try StreamPair.open(memory: memory, owner: process + $0, user: user) }
            for pair in pairs { try begin(pair) }
            return pairs
        }
        // A quarter is left, but not for the administrator.
        let own = try begun(7, from: 1, of: nil)
        #expect(own.map(\.stream.awaitsMemory) == [false, false, false, false, false, false, true])
        try end(own[0])
        #expect(!own[6].stream.awaitsMemory)
        try end(own[1])
        let greedy = try begun(4, from: 11, of: 1_001)
        #expect(greedy.map(\.stream.awaitsMemory) == [false, false, true, true])
        let other = try begun(1, from: 21, of: 1_002)
        #expect(!other[0].stream.awaitsMemory)
        try end(other[0])
        #expect(other[0].messages.count == 1)
        // The end of a frame makes room for the next one of the same user.
        try end(greedy[0])
        #expect(greedy.map(\.stream.awaitsMemory) == [false, false, false, true])
    }

    @Test func `what a connection held is free when it ends, and who waits is not waited for when it is gone`() throws {
        let memory = ConnectionMemory(frameCapacity: Self.frame)
        let holder = try StreamPair.open(memory: memory, owner: 1)
        try begin(holder)
        var waiting: StreamPair? = try StreamPair.open(memory: memory, owner: 2)
        let last = try StreamPair.open(memory: memory, owner: 3)
        try begin(try #require(waiting))
        try begin(last)
        #expect(last.stream.awaitsMemory)
        waiting = nil
        UnixSocket.shutDown(holder.other)
        #expect(try holder.run { holder.stream.isEnded })
        #expect(!last.stream.awaitsMemory)
        #expect(memory.reservedBytes == Self.frame)
        try last.pass()
        try end(last)
        #expect(last.messages.count == 1)
        #expect(memory.reservedBytes == 0 && !memory.isMemoryShort)
    }

    @Test func `a connection that ended while it waited is heard to its end`() throws {
        let memory = ConnectionMemory(frameCapacity: Self.frame)
        let holder = try StreamPair.open(memory: memory, owner: 1)
        try begin(holder)
        let gone = try StreamPair.open(memory: memory, owner: 2)
        try begin(gone)
        try gone.write([UInt8](repeating: 7, count: Self.frame - 60_000))
        UnixSocket.shutDown(gone.other)
        try gone.pass()
        #expect(gone.stream.isHungUp && !gone.stream.isEnded)
        try end(holder)
        #expect(try gone.run { gone.stream.isEnded })
        #expect(gone.messages.map(\.head.count) == [Self.frame])
    }

    @Test func `a closed memory grants nothing, so the end of one connection does not wake another`() throws {
        let memory = ConnectionMemory(frameCapacity: Self.frame)
        let (holder, waiting) = (try StreamPair.open(memory: memory, owner: 1), try StreamPair.open(memory: memory))
        try begin(holder)
        try begin(waiting)
        memory.close()
        try end(holder)
        #expect(holder.messages.count == 1)
        #expect(waiting.stream.awaitsMemory && !memory.isMemoryShort)
        #expect(memory.reservedBytes == 0)
    }

    @Test func `a frame for which there can never be room has its turn alone`() throws {
        let memory = ConnectionMemory(frameCapacity: 1_000)
        let pairs = try (0..<2).map { try StreamPair.open(memory: memory, owner: Int32($0)) }
        for pair in pairs { try begin(pair) }
        #expect(pairs.map(\.stream.awaitsMemory) == [false, true])
        try end(pairs[0])
        try pairs[1].pass()
        try end(pairs[1])
        #expect(pairs.map(\.messages.count) == [1, 1])
    }

    @Test func `a head that waits for its body keeps its room`() throws {
        let memory = ConnectionMemory()
        let pair = try StreamPair.open(memory: memory)
        try pair.write([3, 0, 0, 0, 0, 0, 1, 0x86, 0xa0] + [UInt8](repeating: 7, count: 60_000))
        try pair.pass()
        try pair.write([UInt8](repeating: 7, count: 40_000))
        try pair.pass()
        #expect(pair.messages.isEmpty)
        #expect(memory.reservedBytes == Self.frame)
        try pair.write([0, 1, 65])
        #expect(try pair.run { pair.messages.count == 1 })
        #expect(memory.reservedBytes == 0)
    }

    @Test func `short frames need no room`() throws {
        let memory = ConnectionMemory(frameCapacity: 1)
        let pair = try StreamPair.open(memory: memory)
        try pair.write([2, 0, 0, 0, 0, 0, 0, 0x40, 0])
        try pair.pass()
        #expect(memory.reservedBytes == 0 && !memory.isMemoryShort)
        #expect(pair.stream.partialFrame != nil)
    }

    @Test func `what waits to be written is counted, replies apart, until it is written or given up`() throws {
        let memory = ConnectionMemory()
        let pair = try StreamPair.open(memory: memory)
        #expect(memory.unsentBytes == 0)
        let body = [UInt8](repeating: 1, count: 1 << 20)
        #expect(pair.stream.send(Message(head: [65], body: body), isReply: true))
        #expect(pair.stream.send(Message(head: [66], body: [1])))
        #expect(pair.stream.unsentBytes == (3 + 9 + body.count) + (3 + 3))
        #expect(pair.stream.unsentReplyBytes == 3 + 9 + body.count)
        #expect((pair.stream.unsentMessages, pair.stream.unsentReplies) == (2, 1))
        #expect(memory.unsentBytes == pair.stream.unsentBytes)
        #expect(memory.unsentReplyBytes == pair.stream.unsentReplyBytes)
        pair.stream.flush()
        #expect(pair.stream.unsentBytes < body.count)
        #expect(memory.unsentBytes == pair.stream.unsentBytes)
        var read = 0
        #expect(
            try pair.run {
                read += pair.read()?.count ?? 0
                return pair.stream.isIdle
            })
        #expect((memory.unsentBytes, memory.unsentReplyBytes) == (0, 0))
        #expect((pair.stream.unsentMessages, pair.stream.unsentReplies) == (0, 0))
        #expect(pair.stream.send(Message(head: [65], body: body), isReply: true))
        UnixSocket.shutDown(pair.other)
        #expect(try pair.run { pair.stream.isEnded })
        #expect((memory.unsentBytes, memory.unsentReplyBytes) == (0, 0))
    }
}
