import EarshotLoop
import Testing

@testable import ZMTP

/// Messages between two ends of a connection, and bytes that are none.
@Suite struct MessageStreamTests {
    static let long: [UInt8] = [1, 2] + [UInt8](repeating: 7, count: 298)
    /// Two frames; the second needs a long length.
    static let twoFrames: [UInt8] = [1, 3] + Array("abc".utf8) + [2, 0, 0, 0, 0, 0, 0, 1, 44] + long

    @Test func `messages come as they were sent, whatever pieces they come in`() throws {
        let pair = try StreamPair()
        for byte in Handshake.greetingAndReady(as: .dealer) + Self.twoFrames + [1, 0, 0, 1, 9] {
            try pair.write([byte])
            try pair.pass()
        }
        #expect(try pair.run { pair.messages.count == 2 })
        #expect(pair.messages.first == Message(head: Array("abc".utf8), body: Self.long))
        #expect(pair.messages.last == Message(head: [], body: [9]))
        #expect(pair.stream.peerType == .dealer)
    }

    @Test(arguments: [0, 1, 255, 256, 16_383, 16_384, 65_536, 100_000, 1 << 20])
    func `a body of any size goes from one stream to another`(count: Int) throws {
        let body = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let (left, right) = try Self.pairOfStreams()
        for index in 0..<3 {
            #expect(left.stream.send(Message(head: [UInt8(index)], body: index == 1 ? nil : body)))
        }
        left.stream.flush()
        #expect(try left.loop.run(for: .seconds(60)) { right.messages.count == 3 })
        #expect(right.messages.map(\.head) == [[0], [1], [2]])
        #expect(right.messages.map(\.body) == [body, nil, body])
    }

    @Test func `frames behind the second are passed over and told`() throws {
        let pair = try StreamPair.open()
        let surplus: [UInt8] = [3, 0, 0, 0, 0, 0, 0, 0, 250] + [UInt8](repeating: 1, count: 250)
        try pair.write([1, 1, 65, 1, 1, 66] + surplus + surplus + [0, 2, 1, 1] + Self.twoFrames)
        #expect(try pair.run { pair.messages.count == 2 })
        #expect(pair.messages.first?.hadSurplusFrames == true)
        #expect(pair.messages.first?.head == [65])
        #expect(pair.messages.last == Message(head: Array("abc".utf8), body: Self.long))
    }

    @Test(
        arguments: [
            ("a frame over the bound", [2, 0, 0, 0, 0, 0, 0, 3, 233]),
            ("a length no memory has", [2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ("unknown flags", [0x40, 1, 65]), ("a command of two frames", [5, 1, 65]),
            ("a command without a name", [4, 0]), ("a PING that is none", [4, 5] + Array("\u{4}PING".utf8)),
            ("a command over its bound", [6, 0, 0, 0, 0, 0, 0, 16, 1]),
        ] as [(String, [UInt8])])
    func `what is no message ends the connection, and says why`(_ what: String, _ bytes: [UInt8]) throws {
        let pair = try StreamPair.open(frameBytes: 1_000)
        try pair.write([0, 1, 65] + bytes)
        #expect(try pair.run { pair.stream.isEnded })
        #expect(pair.messages == [Message(head: [65])])
        #expect(pair.stream.violation != nil)
        #expect(pair.read() == nil)
    }

    @Test func `a message before READY ends the connection`() throws {
        let pair = try StreamPair()
        try pair.write(HandshakeTests.libzmqGreeting + [0, 1, 65])
        #expect(try pair.run { pair.stream.isEnded })
        #expect(pair.messages == [])
    }

    @Test(arguments: [
        [0xff], HandshakeTests.libzmqGreeting, Handshake.greetingAndReady(as: .dealer) + [1, 1, 65, 0, 9, 66],
    ])
    func `what has not come whole is waited for without a look at it`(bytes: [UInt8]) throws {
        let pair = try StreamPair()
        try pair.write(bytes)
        try pair.pass()
        #expect(!pair.stream.mayHavePendingMessage)
        #expect(!pair.stream.isEnded)
    }

    @Test func `a socket of another kind ends the connection`() throws {
        let pair = try StreamPair()
        try pair.write(
            HandshakeTests.libzmqGreeting + [4, 25] + Array("\u{5}READY\u{b}Socket-Type\0\0\0\u{3}PUB".utf8))
        #expect(try pair.run { pair.stream.isEnded })
    }

    @Test func `what was said before the end is handed out before it`() throws {
        let pair = try StreamPair.open()
        try pair.write((0..<500).flatMap { _ in [0, 1, 65] as [UInt8] })
        UnixSocket.shutDown(pair.other)
        #expect(try pair.run { pair.stream.isEnded })
        #expect(pair.messages.count == 500)
        #expect(pair.stream.violation == nil)
    }

    @Test func `PING is answered, and no message`() throws {
        let pair = try StreamPair.open()
        try pair.write([4, 8] + Array("\u{4}PING\0\u{a}x".utf8) + [0, 1, 65])
        #expect(try pair.run { pair.messages.count == 1 })
        #expect(pair.read() == [4, 6] + Array("\u{4}PONGx".utf8))
    }

    @Test func `who pings without end and does not read is not answered without end`() throws {
        let pair = try StreamPair.open()
        let pings: [UInt8] = (0..<2_000).flatMap { _ in [4, 7] + Array("\u{4}PING\0\u{a}".utf8) }
        for _ in 0..<200 {
            try pair.write(pings)
            try pair.pass()
        }
        // Only the kernel's buffer and the replies before the first refused write: 400,000 replies would be 2.8 MB.
        var answered = 0
        while let bytes = pair.read(), !bytes.isEmpty {
            answered += bytes.count
            try pair.pass()
        }
        #expect(answered < 1 << 20)
        #expect(!pair.stream.isEnded)
    }

    @Test func `one that is not read from takes so many messages, and has them when it reads`() throws {
        let (left, right) = try Self.pairOfStreams(maximumMessages: 100)
        right.stream.isReading = false
        let body = [UInt8](repeating: 1, count: 50_000)
        var sent: UInt8 = 0
        while left.stream.send(Message(head: [sent], body: body)) {
            left.stream.flush()
            sent += 1
        }
        // The kernel holds some messages, the stream a hundred.
        #expect(sent > 100)
        #expect(try left.loop.run(for: .milliseconds(20)) { !right.messages.isEmpty } == false)
        right.stream.isReading = true
        #expect(try left.loop.run(for: .seconds(60)) { right.messages.count == Int(sent) })
        #expect(right.messages.map(\.head) == (0..<sent).map { [$0] })
        #expect(left.stream.send(Message(head: [])))
    }

    @Test func `a write that finds the peer gone tells of it at once`() throws {
        let pair = try StreamPair.open()
        try pair.write([0, 1, 7])
        UnixSocket.shutDown(pair.other)
        #expect(pair.stream.send(Message(head: [1])) && !pair.stream.isHungUp)
        pair.stream.flush()
        #expect(pair.stream.isHungUp && pair.stream.isIdle && !pair.stream.isEnded)
        #expect(try pair.run { pair.messages.map(\.head) == [[7]] })
    }

    @Test func `who does not read hears of the end all the same`() throws {
        let pair = try StreamPair.open()
        pair.stream.isReading = false
        UnixSocket.shutDown(pair.other)
        #expect(try pair.run { pair.stream.isHungUp })
        #expect(!pair.stream.isEnded)
    }

    @Test func `what lingers is written before the time is over`() throws {
        let pair = try StreamPair.open()
        #expect(pair.stream.send(Message(head: [65])))
        pair.stream.linger(milliseconds: 1_000)
        #expect(pair.read() == [0, 1, 65])
    }

    @Test func `its memory does not grow with a message without end`() throws {
        let pair = try StreamPair.open()
        try pair.write([1, 1, 65, 1, 1, 66])
        let frames: [UInt8] = (0..<512).flatMap { _ in [1, 1, 1] as [UInt8] }
        for _ in 0..<200 {
            try pair.write(frames)
            try pair.pass()
        }
        #expect(pair.messages == [])
        try pair.write([0, 1, 67])
        #expect(try pair.run { pair.messages.count == 1 })
        #expect(pair.messages.first?.body == [66])
    }

    /// Received part of a frame whose header announces 4 MiB.
    @Test(arguments: [0, 1, 65_535, 65_536, 65_537, 200_000, 1 << 20])
    func `a frame has memory for what came of it, not for what its header says`(count: Int) throws {
        let pair = try StreamPair.open(frameBytes: 4 << 20)
        var sent: [UInt8] = [2, 0, 0, 0, 0, 0, 0x40, 0, 0] + [UInt8](repeating: 7, count: count)
        while !sent.isEmpty {
            try pair.write(Array(sent.prefix(60_000)))
            sent.removeFirst(min(sent.count, 60_000))
            try pair.pass()
        }
        let frame = try #require(pair.stream.partialFrame)
        #expect(frame.filledBytes == count)
        // Doubled whenever it is full, so at most twice the received bytes. The allocator rounds up by some pages.
        let most = max(PartialFrame.initialCapacityBytes, 2 * count)
        #expect(frame.bytes.capacity <= most + 16_384)
        #expect(frame.bytes.count > count)
        #expect(!pair.stream.isEnded && pair.messages.isEmpty)
    }

    @Test func `of many connections that announce 4 MiB each has little memory, and none when it ends`() throws {
        let pairs = try (0..<20).map { _ in try StreamPair.open(frameBytes: 4 << 20) }
        for pair in pairs {
            try pair.write([2, 0, 0, 0, 0, 0, 0x40, 0, 0])
            try pair.pass()
        }
        #expect(pairs.reduce(0) { $0 + ($1.stream.partialFrame?.bytes.capacity ?? 0) } <= 20 * 70_000)
        for pair in pairs {
            UnixSocket.shutDown(pair.other)
            #expect(try pair.run { pair.stream.isEnded })
            #expect(pair.stream.partialFrame == nil)
        }
    }

    /// Returns two streams in one loop after their handshake.
    static func pairOfStreams(maximumMessages: Int = 1_000) throws -> (StreamEnd, StreamEnd) {
        let loop = try EventLoop()
        let (one, other) = try StreamEnd.descriptors()
        let left = try StreamEnd(one, as: .dealer, maximumMessages: maximumMessages, loop)
        let right = try StreamEnd(other, as: .router, maximumMessages: maximumMessages, loop)
        #expect(try loop.run(for: .seconds(60)) { left.stream.isOpen && right.stream.isOpen })
        return (left, right)
    }
}
