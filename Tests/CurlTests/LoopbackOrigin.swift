import Glibc

/// HTTP origin on the loopback interface that runs inside the test's loop, without threads and races.
final class LoopbackOrigin {
    /// Response to a request.
    struct Reply {
        enum End {
            /// Keeps the connection open.
            case open
            /// Closes it in an orderly way after sending everything.
            case close
            /// Resets it (RST) after sending everything.
            case reset
        }

        var bytes: [UInt8]
        var end: End
    }

    private struct Connection {
        var received: [UInt8] = []
        var unsent: [UInt8] = []
        var end = Reply.End.open
    }

    let port: UInt16
    /// Received request heads as text.
    private(set) var requests: [String] = []
    /// Number of accepted connections, and number of those closed by the peer.
    private(set) var accepted = 0
    private(set) var closedByPeer = 0

    private let listener: Int32
    private let script: (_ requestHead: String) -> Reply
    private var connections: [Int32: Connection] = [:]

    init(script: @escaping (_ requestHead: String) -> Reply) throws {
        self.script = script
        (listener, port) = try Loopback.listen(backlog: 16)
    }

    /// Creates an origin that sends the same response to every request.
    convenience init(_ text: String, body: [UInt8] = [], end: Reply.End = .open) throws {
        try self.init { _ in Reply(bytes: Array(text.utf8) + body, end: end) }
    }

    deinit {
        close(listener)
        for descriptor in connections.keys { close(descriptor) }
    }

    /// Descriptors and events to poll.
    var interests: [pollfd] {
        [pollfd(fd: listener, events: Int16(POLLIN), revents: 0)]
            + connections.map { descriptor, connection in
                pollfd(fd: descriptor, events: Int16(connection.unsent.isEmpty ? POLLIN : POLLIN | POLLOUT), revents: 0)
            }
    }

    func ready(_ descriptor: Int32) {
        if descriptor == listener {
            let connection = accept(listener, nil, nil)
            guard connection >= 0, fcntl(connection, F_SETFL, O_NONBLOCK) == 0 else { return }
            accepted += 1
            connections[connection] = Connection()
        } else if connections[descriptor] != nil {
            receive(descriptor)
            send(descriptor)
        }
    }

    /// Sends bytes on each open connection, even without a request.
    func sendUnsolicited(_ bytes: [UInt8]) {
        for descriptor in connections.keys {
            connections[descriptor]?.unsent += bytes
            send(descriptor)
        }
    }

    private func receive(_ descriptor: Int32) {
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
        if count == 0 || (count < 0 && errno != EAGAIN) {
            closedByPeer += 1
            connections[descriptor] = nil
            close(descriptor)
        } else if count > 0, var connection = connections[descriptor] {
            connection.received += buffer.prefix(count)
            let head = String(decoding: connection.received, as: UTF8.self)
            if head.hasSuffix("\r\n\r\n") {
                requests.append(head)
                connection.received = []
                let reply = script(head)
                connection.unsent += reply.bytes
                connection.end = reply.end
            }
            connections[descriptor] = connection
        }
    }

    private func send(_ descriptor: Int32) {
        guard var connection = connections[descriptor] else { return }
        if !connection.unsent.isEmpty {
            let count = unsafe Glibc.send(descriptor, connection.unsent, connection.unsent.count, Int32(MSG_NOSIGNAL))
            if count > 0 { connection.unsent.removeFirst(count) }
            connections[descriptor] = connection
        }
        guard connection.unsent.isEmpty, connection.end != .open else { return }
        if connection.end == .reset { Loopback.breakOnClose(descriptor) }
        connections[descriptor] = nil
        close(descriptor)
    }
}
