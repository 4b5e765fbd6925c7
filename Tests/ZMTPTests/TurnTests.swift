import EarshotLoop
import Glibc
import Testing

@testable import ZMTP

/// A turn bounds the processed input of every kind.
@Suite struct TurnTests {
    private static func ping(_ context: UInt8) -> [UInt8] { [4, 8] + Array("\u{4}PING\0\u{a}".utf8) + [context] }

    private static func pong(_ context: UInt8) -> [UInt8] { [4, 6] + Array("\u{4}PONG".utf8) + [context] }

    @Test func `a turn answers so many PINGs, all in one write, and the next one goes on`() throws {
        // Each write is a separate record of this socket type.
        let end = try BareStream.open(SOCK_SEQPACKET)
        try end.write((0..<100).flatMap { Self.ping($0) })
        #expect(end.turn(items: 30).messages == [])
        #expect(end.stream.mayHavePendingMessage)
        #expect(end.read() == (0..<30).flatMap { Self.pong($0) })
        #expect(end.read() == [])
        #expect(end.turn(items: 100).messages == [])
        #expect(!end.stream.mayHavePendingMessage)
        #expect(end.read() == (30..<100).flatMap { Self.pong($0) })
    }

    @Test func `answers to PINGs before a message are written though the turn goes on`() throws {
        let end = try BareStream.open()
        try end.write(Self.ping(7) + [0, 1, 65])
        try end.await()
        #expect(end.stream.next() == Message(head: [65]))
        #expect(end.read() == Self.pong(7))
    }

    @Test(
        arguments: [
            ("unknown commands", [4, 6] + Array("\u{5}OTHER".utf8), 0), ("empty messages", [0, 0], 30),
            ("messages of three frames", [1, 0, 1, 1, 65, 0, 1, 66], 30),
        ] as [(String, [UInt8], Int)])
    func `a turn processes so many items, and the next one goes on`(_ kind: String, unit: [UInt8], messages: Int) throws
    {
        let end = try BareStream.open()
        try end.write((0..<40).flatMap { _ in unit })
        #expect(end.turn(items: 30).messages.count == messages)
        #expect(end.stream.mayHavePendingMessage)
        #expect(end.turn(items: 30).messages.count == messages / 3)
        #expect(!end.stream.mayHavePendingMessage)
    }

    @Test(arguments: [[1, 0], [1, 1, 65], [3, 0, 0, 0, 0, 0, 0, 0, 0]] as [[UInt8]])
    func `frames of an endless message count`(frame: [UInt8]) throws {
        let end = try BareStream.open()
        // Neither the head nor the body counts.
        try end.write([1, 1, 65, 1, 1, 66] + (0..<40).flatMap { _ in frame } + [0, 0])
        #expect(end.turn(items: 30).messages == [])
        #expect(end.stream.mayHavePendingMessage)
        let (messages, rest) = end.turn(items: 30)
        #expect(messages.map(\.hadSurplusFrames) == [true])
        #expect(rest.remainingItems == 19)
        #expect(!end.stream.mayHavePendingMessage)
    }

    @Test func `a turn reads so many bytes and an input buffer more at most`() throws {
        let end = try BareStream.open()
        let header: [UInt8] = [2, 0, 0, 0, 0, 0, 0x40, 0, 0]
        let sent = try end.fill(header + [UInt8](repeating: 7, count: 1 << 20))
        try #require(sent > 150_000)
        var (read, turns) = (0, 0)
        while read < sent - header.count, turns < 20 {
            _ = end.turn(items: 30, bytes: 20_000)
            turns += 1
            let filled = end.stream.partialFrame?.filledBytes ?? 0
            #expect(filled - read <= 20_000 + 65_536)
            read = filled
        }
        #expect(read == sent - header.count)
        #expect(turns > 2)
    }

    @Test func `of the PINGs that came while nobody read only the newest is answered`() throws {
        let end = try BareStream.open()
        // A body that exceeds the socket's buffer.
        let body = [UInt8](repeating: 1, count: 1 << 20)
        #expect(end.stream.send(Message(head: [], body: body)))
        end.stream.flush()
        for context: UInt8 in 1...100 { try end.write(Self.ping(context)) }
        _ = end.turn(items: 200)
        var received: [UInt8] = []
        while received.count < 11 + body.count + 8 {
            received += end.read()
            try end.await()
        }
        #expect(Array(received.dropFirst(11 + body.count)) == Self.pong(100))
    }
}

/// Stream that takes turns on request, and the raw socket at its other end.
private final class BareStream {
    let loop: EventLoop
    let stream: MessageStream
    private let other: Int32

    private init(_ kind: __socket_type) throws {
        var ends: [Int32] = [-1, -1]
        try #require(unsafe socketpair(AF_UNIX, Int32(kind.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0, &ends) == 0)
        loop = try EventLoop()
        other = ends[1]
        stream = try MessageStream(ends[0], as: .router, frameBytes: 4 << 20, maximumMessages: 10, loop: loop) {}
    }

    deinit { UnixSocket.close(other) }

    /// Returns a stream whose raw end has completed the handshake.
    static func open(_ kind: __socket_type = SOCK_STREAM) throws -> BareStream {
        let made = try BareStream(kind)
        try made.write(Handshake.greetingAndReady(as: .dealer))
        made.stream.flush()
        _ = made.turn(items: 10)
        try #require(made.stream.isOpen)
        _ = made.read()
        return made
    }

    /// Returns the messages of a turn, and the rest of the turn.
    func turn(items: Int, bytes: Int = 1 << 20) -> (messages: [Message], rest: Turn) {
        try? self.await()
        var turn = Turn(items: items, bytes: bytes)
        var messages: [Message] = []
        while let message = stream.next(&turn) { messages.append(message) }
        return (messages, turn)
    }

    /// Makes the loop report input and room for output to the stream.
    func await() throws {
        var passes = 0
        _ = try loop.run(for: .milliseconds(20)) {
            passes += 1
            return passes > 1
        }
    }

    func write(_ bytes: [UInt8]) throws { try #require(fill(bytes) == bytes.count) }

    /// - Returns: Number of bytes accepted by the kernel.
    func fill(_ bytes: [UInt8]) throws -> Int {
        var written = 0
        while written < bytes.count {
            let outcome = unsafe bytes[written...].withUnsafeBytes { unsafe UnixSocket.send(other, $0) }
            guard case .bytesTransferred(let count) = outcome else { break }
            written += count
        }
        return written
    }

    /// Returns the result of one read at the raw end.
    func read() -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        guard
            case .bytesTransferred(let count) = unsafe buffer.withUnsafeMutableBytes({
                unsafe UnixSocket.receive(other, into: $0)
            }
            )
        else { return [] }
        return Array(buffer[..<count])
    }
}
