import EarshotLoop
import Glibc

/// HTTP origin on the loopback interface. It runs inside the test's loop, without threads and races: an event loop, or one that polls
/// its descriptors.
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
        var end = End.open

        init(bytes: [UInt8], end: End = .open) {
            self.bytes = bytes
            self.end = end
        }

        init(_ text: String, body: [UInt8] = [], closes: Bool = false) {
            self.init(bytes: Array(text.utf8) + body, end: closes ? .close : .open)
        }

        /// Returns a complete response with status 200.
        static func ok(_ body: [UInt8], fields: String = "") -> Reply {
            Reply("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\(fields)\r\n", body: body)
        }
    }

    private struct Connection {
        var registration: EventLoop.Registration?
        var received: [UInt8] = []
        /// Last request on the connection.
        var request = ""
        var unsent: [UInt8] = []
        var end = Reply.End.open
    }

    let port: UInt16
    /// Received requests as text: their heads, and bodies with a length.
    private(set) var requests: [String] = []
    /// Number of accepted connections, and number of those closed by the peer.
    private(set) var accepted = 0
    private(set) var closedByPeer = 0
    /// Called with the last request of a connection that its peer has closed.
    var onClose: ((_ request: String) -> Void)?

    private let loop: EventLoop?
    private let listener: Int32
    private let script: (_ request: String) -> Reply
    private var connections: [Int32: Connection] = [:]

    /// - Parameters:
    ///   - loop: event loop of the origin; nil for a test that polls `interests`.
    ///   - socket: listening socket and its port; nil for a new one.
    init(
        _ loop: EventLoop? = nil, socket: (descriptor: Int32, port: UInt16)? = nil,
        script: @escaping (_ request: String) -> Reply
    ) throws {
        self.loop = loop
        self.script = script
        let (descriptor, port) = try socket ?? Loopback.listen()
        (listener, self.port) = (descriptor, port)
        _ = try loop?.add(descriptor, .readable) { [weak self] _ in self?.ready(descriptor) }
    }

    /// Creates an origin that sends the same response to every request.
    convenience init(_ text: String, body: [UInt8] = [], end: Reply.End = .open) throws {
        try self.init { _ in Reply(bytes: Array(text.utf8) + body, end: end) }
    }

    deinit {
        close(listener)
        for descriptor in connections.keys { close(descriptor) }
    }

    func url(_ path: String = "/file", host: String = "127.0.0.1") -> String { "http://\(host):\(port)\(path)" }

    /// Descriptors and events to poll.
    var interests: [pollfd] {
        [pollfd(fd: listener, events: Int16(POLLIN), revents: 0)]
            + connections.map { descriptor, connection in
                pollfd(fd: descriptor, events: Int16(connection.unsent.isEmpty ? POLLIN : POLLIN | POLLOUT), revents: 0)
            }
    }

    func ready(_ descriptor: Int32) {
        guard descriptor != listener else { return accept() }
        guard connections[descriptor] != nil else { return }
        receive(descriptor)
        flush(descriptor)
    }

    /// Sends bytes on each open connection, even without a request; with a path, on those on which it was requested.
    func send(_ bytes: [UInt8], to path: String? = nil) {
        for (descriptor, connection) in connections
        where path.map({ connection.request.hasPrefix("GET \($0)") }) ?? true {
            connections[descriptor]?.unsent += bytes
            flush(descriptor)
        }
    }

    private func accept() {
        let descriptor = Glibc.accept(listener, nil, nil)
        guard descriptor >= 0, fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else { return }
        accepted += 1
        connections[descriptor] = Connection()
        connections[descriptor]?.registration = try? loop?.add(descriptor, .readable) { [weak self] _ in
            self?.ready(descriptor)
        }
    }

    private func receive(_ descriptor: Int32) {
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
        if count == 0 || (count < 0 && errno != EAGAIN) {
            closedByPeer += 1
            onClose?(connections[descriptor]?.request ?? "")
            drop(descriptor)
        } else if count > 0, var connection = connections[descriptor] {
            connection.received += buffer.prefix(count)
            if let request = Self.request(connection.received) {
                requests.append(request)
                connection.received = []
                connection.request = request
                let reply = script(request)
                connection.unsent += reply.bytes
                connection.end = reply.end
            }
            connections[descriptor] = connection
        }
    }

    /// Returns the request once it is complete: its head and the body announced by `Content-Length`.
    private static func request(_ bytes: [UInt8]) -> String? {
        let text = String(decoding: bytes, as: UTF8.self)
        guard let end = text.utf8.firstRange(of: Array("\r\n\r\n".utf8))?.upperBound else { return nil }
        let head = text.utf8.distance(from: text.startIndex, to: end)
        let line = text[..<end].split(separator: "\r\n").first { $0.lowercased().hasPrefix("content-length: ") }
        let length = line.flatMap { Int($0.dropFirst("content-length: ".count)) } ?? 0
        return bytes.count >= head + length ? text : nil
    }

    private func flush(_ descriptor: Int32) {
        guard var connection = connections[descriptor] else { return }
        while !connection.unsent.isEmpty {
            let part = Array(connection.unsent.prefix(1 << 20))
            let count = unsafe Glibc.send(descriptor, part, part.count, Int32(MSG_NOSIGNAL))
            guard count > 0 else { break }
            connection.unsent.removeFirst(count)
        }
        connections[descriptor] = connection
        if connection.unsent.isEmpty, connection.end != .open {
            if connection.end == .reset { Loopback.breakOnClose(descriptor) }
            return drop(descriptor)
        }
        guard let loop, let registration = connection.registration else { return }
        try? loop.changeInterest(of: registration, to: connection.unsent.isEmpty ? .readable : [.readable, .writable])
    }

    private func drop(_ descriptor: Int32) {
        guard let connection = connections.removeValue(forKey: descriptor) else { return }
        if let registration = connection.registration { loop?.remove(registration) }
        close(descriptor)
    }
}
