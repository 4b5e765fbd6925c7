import EarshotLoop
import Glibc
import Testing

@testable import ZMTP

/// Stream in a shared loop, with the messages it received.
final class StreamEnd {
    let loop: EventLoop
    let stream: MessageStream
    private(set) var messages: [Message] = []

    init(_ descriptor: Int32, as type: SocketType, maximumMessages: Int = 1_000, _ loop: EventLoop) throws {
        self.loop = loop
        stream = try MessageStream(
            descriptor, as: type, frameBytes: 4 << 20, maximumMessages: maximumMessages, loop: loop
        ) {}
        _ = loop.addHook { [weak self] in
            guard let self else { return .untilEvent }
            while let message = stream.next() { messages.append(message) }
            stream.flush()
            return stream.isReading && stream.mayHavePendingMessage ? .noSleep : .untilEvent
        }
    }

    static func descriptors() throws -> (Int32, Int32) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        try #require(unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0)
        return (ends[0], ends[1])
    }
}
