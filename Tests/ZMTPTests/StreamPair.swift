import EarshotLoop
import Glibc
import Testing

@testable import ZMTP

/// Stream, and the raw socket at its other end.
final class StreamPair {
    let loop: EventLoop
    let stream: MessageStream
    let other: Int32
    private(set) var messages: [Message] = []
    private var hook: EventLoop.HookID?
    /// Whether the loop must not sleep.
    private var isPassing = false

    init(
        as type: SocketType = .router, frameBytes: Int = 1 << 20, maximumMessages: Int = 1_000,
        memory: ConnectionMemory = ConnectionMemory(), owner: Int32 = 0, user: UInt32? = nil
    ) throws {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        try #require(unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0)
        loop = try EventLoop()
        other = ends[1]
        stream = try MessageStream(
            ends[0], as: type, frameBytes: frameBytes, maximumMessages: maximumMessages, memory: memory,
            owner: ConnectionMemory.Owner(process: owner, user: user), loop: loop
        ) {}
        hook = loop.addHook { [unowned self] in
            while let message = stream.next() { messages.append(message) }
            stream.flush()
            return isPassing || stream.isReading && stream.mayHavePendingMessage ? .noSleep : .untilEvent
        }
    }

    deinit { UnixSocket.close(other) }

    /// Returns a pair whose raw end has completed the handshake as a DEALER.
    static func open(
        frameBytes: Int = 1 << 20, maximumMessages: Int = 1_000, memory: ConnectionMemory = ConnectionMemory(),
        owner: Int32 = 0, user: UInt32? = nil
    ) throws -> StreamPair {
        let pair = try StreamPair(
            frameBytes: frameBytes, maximumMessages: maximumMessages, memory: memory, owner: owner, user: user)
        try pair.write(Handshake.greetingAndReady(as: .dealer))
        try #require(try pair.run { pair.stream.isOpen })
        _ = pair.read()
        return pair
    }

    func run(until condition: () -> Bool) throws -> Bool { try loop.run(for: .seconds(60), until: condition) }

    /// Runs one pass of the loop, which processes the written bytes.
    func pass() throws {
        isPassing = true
        defer { isPassing = false }
        var requested = 0
        try #require(
            try run {
                requested += 1
                return requested == 2
            })
    }

    /// Writes at the raw end as much as it accepts without blocking: everything below 100 KiB.
    func write(_ bytes: [UInt8]) throws {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes { unsafe UnixSocket.send(other, $0) }
            guard case .bytesTransferred(let sent) = count else { break }
            written += sent
        }
        try #require(written == bytes.count)
    }

    /// Returns the bytes available at the raw end; nil after the stream has ended.
    func read() -> [UInt8]? {
        var read: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            switch unsafe buffer.withUnsafeMutableBytes({ unsafe UnixSocket.receive(other, into: $0) }) {
            case .bytesTransferred(let count): read += buffer[..<count]
            case .wouldBlock: return read
            case .connectionEnded: return read.isEmpty ? nil : read
            }
        }
    }
}
