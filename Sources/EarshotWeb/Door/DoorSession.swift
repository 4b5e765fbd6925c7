internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// Session of one HTTP connection at the broker, over a connection of its own: its end removes the requests.
///
/// It is not `ClientConnection`, which would repeat requests to a later broker that the HTTP client can repeat itself,
/// and costs each pass of the loop a call for each connection.
final class DoorSession {
    /// Maximum size of a frame of the broker: an inline body has at most 16 MiB.
    private static let frameBytes = 32 << 20
    private static let unsentMessages = 16

    private var stream: MessageStream?
    private var unsentMessageQueue: [Message] = []
    /// Whether the broker accepts no further requests.
    private(set) var isBrokerDraining = false

    /// - Parameter onReady: called when ``next()`` may have a message, before the hooks of the pass.
    init(path: String, hello: Hello, loop: EventLoop, onReady: @escaping () -> Void) throws(SystemError) {
        let descriptor = try UnixSocket.connect(to: path, ownedBy: PrivateFolder.trustedListeners(atSocket: path))
        stream = try MessageStream(
            descriptor, as: .dealer, frameBytes: Self.frameBytes, maximumMessages: Self.unsentMessages, loop: loop
        ) { onReady() }
        send(.hello(hello))
    }

    /// Whether the broker has ended the connection.
    var isEnded: Bool { stream?.isEnded ?? true }

    /// Whether ``next()`` may return a message without an event of the loop.
    var hasPendingMessages: Bool { stream?.mayHavePendingMessage ?? false }

    func send(_ message: ClientMessage, number: UInt64? = nil) {
        unsentMessageQueue.append(Message(head: NumberedMessage(message, number: number).encoded(), body: message.body))
        flush()
    }

    /// Returns the next message; nil if none is complete. Skips unknown and malformed ones.
    func next() -> (answer: NumberedAnswer, body: [UInt8])? {
        while let message = stream?.next() {
            flush()
            guard let answer = try? NumberedAnswer(head: message.head) else { continue }
            if case .goodbye = answer.message { isBrokerDraining = true }
            return (answer, message.body ?? [])
        }
        flush()
        return nil
    }

    private func flush() {
        guard let stream else { return }
        while let message = unsentMessageQueue.first, stream.send(message) { unsentMessageQueue.removeFirst() }
        stream.flush()
    }

    /// Ends the session, and with it its requests.
    func close() { stream = nil }
}
