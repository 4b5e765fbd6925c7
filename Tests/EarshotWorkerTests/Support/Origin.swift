import EarshotLoop
import Glibc

/// HTTP origin on the loopback interface and on the test's own loop, so that no thread can race.
final class Origin {
    /// Response to a request.
    struct Reply {
        var bytes: [UInt8]
        /// Whether the connection is closed after the last byte.
        var closes = false

        init(_ text: String, body: [UInt8] = [], closes: Bool = false) {
            bytes = Array(text.utf8) + body
            self.closes = closes
        }

        /// Returns a complete response with status 200.
        static func ok(_ body: [UInt8], fields: String = "") -> Reply {
            Reply("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\(fields)\r\n", body: body)
        }
    }

    private struct Connection {
        let registration: EventLoop.Registration
        var received: [UInt8] = []
        /// Head of the last request on the connection.
        var request = ""
        var unsent: [UInt8] = []
        var closes = false
    }

    let port: UInt16
    /// Heads of the received requests, as text.
    private(set) var requests: [String] = []
    /// Number of accepted connections.
    private(set) var accepted = 0
    /// Number of connections that the peer closed.
    private(set) var closedByPeer = 0

    private let loop: EventLoop
    private let listener: Int32
    private let script: (_ requestHead: String) -> Reply
    private var connections: [Int32: Connection] = [:]

    init(_ loop: EventLoop, script: @escaping (_ requestHead: String) -> Reply) throws {
        self.loop = loop
        self.script = script
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        self.listener = listener
        port = Loopback.bind(listener)
        guard listen(listener, 1024) == 0 else { throw SystemError("listen", number: errno) }
        _ = try loop.add(listener, .readable) { [weak self] _ in self?.accept() }
    }

    deinit {
        close(listener)
        for descriptor in connections.keys { close(descriptor) }
    }

    func url(_ path: String = "/file", host: String = "127.0.0.1") -> String { "http://\(host):\(port)\(path)" }

    /// Sends more bytes on every open connection on which `path`, or any path, was requested.
    func send(_ bytes: [UInt8], to path: String = "/") {
        for (descriptor, connection) in connections where connection.request.hasPrefix("GET \(path)") {
            connections[descriptor]?.unsent += bytes
            flush(descriptor)
        }
    }

    private func accept() {
        let descriptor = Glibc.accept(listener, nil, nil)
        guard descriptor >= 0, fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else { return }
        let registration = try? loop.add(descriptor, .readable) { [weak self] in self?.ready(descriptor, $0) }
        guard let registration else { return }
        accepted += 1
        connections[descriptor] = Connection(registration: registration)
    }

    private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness) {
        if readiness != .writable { receive(descriptor) }
        flush(descriptor)
    }

    private func receive(_ descriptor: Int32) {
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
        if count == 0 || (count < 0 && errno != EAGAIN) {
            closedByPeer += 1
            end(descriptor)
        } else if count > 0, var connection = connections[descriptor] {
            connection.received += buffer.prefix(count)
            if let head = Self.request(connection.received) {
                requests.append(head)
                connection.received = []
                connection.request = head
                let reply = script(head)
                connection.unsent += reply.bytes
                connection.closes = reply.closes
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
        if connection.unsent.isEmpty, connection.closes { return end(descriptor) }
        try? loop.change(
            connection.registration, to: connection.unsent.isEmpty ? .readable : [.readable, .writable])
    }

    private func end(_ descriptor: Int32) {
        guard let connection = connections.removeValue(forKey: descriptor) else { return }
        loop.remove(connection.registration)
        close(descriptor)
    }
}
