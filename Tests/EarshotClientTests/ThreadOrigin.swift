import EarshotLoop
import Glibc

@testable import EarshotClient

/// HTTP origin on loopback with its own thread. `/N` responds with N bytes; other paths have a page or never respond.
final class ThreadOrigin: Sendable {
    /// Response to a path.
    struct Page: Sendable {
        var status = 200
        let count: Int
    }

    /// Received requests.
    struct Journal: Sendable {
        var answered = 0
        var hanging = 0
    }

    private struct Connection {
        let registration: EventLoop.Registration
        var received: [UInt8] = []
        var unsent: [UInt8] = []
        var hangs = false
    }

    /// State of the loop thread.
    private final class Server {
        let loop: EventLoop
        let listener: Int32
        let pages: [String: Page]
        let journal: Observed<Journal>
        var connections: [Int32: Connection] = [:]

        init(_ loop: EventLoop, _ listener: Int32, _ pages: [String: Page], _ journal: Observed<Journal>) {
            self.loop = loop
            self.listener = listener
            self.pages = pages
            self.journal = journal
        }

        func accept() {
            let descriptor = Glibc.accept(listener, nil, nil)
            guard descriptor >= 0, fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0,
                let registration = try? loop.add(descriptor, .readable, { [unowned self] _ in ready(descriptor) })
            else { return }
            connections[descriptor] = Connection(registration: registration)
        }

        func ready(_ descriptor: Int32) {
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
            if count < 0, errno == EAGAIN { return flush(descriptor) }
            guard count > 0 else { return drop(descriptor) }
            connections[descriptor]?.received += buffer[..<count]
            while let head = takeHead(descriptor) { answer(descriptor, head) }
            flush(descriptor)
        }

        private func takeHead(_ descriptor: Int32) -> String? {
            let text = String(decoding: connections[descriptor]?.received ?? [], as: UTF8.self)
            guard let end = text.firstRange(of: "\r\n\r\n") else { return nil }
            connections[descriptor]?.received.removeFirst(text[..<end.upperBound].utf8.count)
            return String(text[..<end.lowerBound])
        }

        private func answer(_ descriptor: Int32, _ head: String) {
            let path = head.split(separator: " ")[1]
            let numbered = Int(path.dropFirst().prefix { $0 != "?" }).map { Page(count: $0) }
            guard let page = pages[String(path)] ?? numbered else {
                connections[descriptor]?.hangs = true
                return journal.change { $0.hanging += 1 }
            }
            let start = "HTTP/1.1 \(page.status) Page\r\nContent-Length: \(page.count)\r\n\r\n"
            connections[descriptor]?.unsent += Array(start.utf8)
            connections[descriptor]?.unsent += [UInt8](repeating: UInt8(ascii: "x"), count: page.count)
            journal.change { $0.answered += 1 }
        }

        private func flush(_ descriptor: Int32) {
            while let connection = connections[descriptor], !connection.unsent.isEmpty {
                let count = unsafe send(
                    descriptor, connection.unsent, connection.unsent.count, Int32(MSG_NOSIGNAL))
                guard count > 0 else { break }
                connections[descriptor]?.unsent.removeFirst(count)
            }
            guard let connection = connections[descriptor] else { return }
            let interest: EventLoop.Interest = connection.unsent.isEmpty ? .readable : [.readable, .writable]
            try? loop.change(connection.registration, to: interest)
        }

        private func drop(_ descriptor: Int32) {
            guard let connection = connections.removeValue(forKey: descriptor) else { return }
            loop.remove(connection.registration)
            close(descriptor)
            if connection.hangs { journal.change { $0.hanging -= 1 } }
        }
    }

    let journal = Observed(Journal())
    private let port: UInt16
    private let ending: Mailbox<Bool>

    /// Starts an origin.
    ///
    /// - Parameter pages: responses by path with its slash.
    init(pages: [String: Page] = [:]) throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(listener, address, length) == 0 && getsockname(listener, address, &length) == 0
            }
        }
        guard isBound, listen(listener, 1024) == 0 else { throw SystemError("listen", number: errno) }
        port = UInt16(bigEndian: address.sin_port)
        ending = try Mailbox()
        let (journal, ending) = (journal, ending)
        try BackgroundThread.run {
            do {
                let loop = try EventLoop()
                let server = Server(loop, listener, pages, journal)
                _ = try loop.add(listener, .readable) { _ in server.accept() }
                _ = try loop.add(ending.descriptor, .readable) { _ in loop.stop() }
                try loop.run()
                for descriptor in server.connections.keys { close(descriptor) }
                close(listener)
            } catch {
                preconditionFailure("the origin failed: \(error)")
            }
        }
    }

    deinit { ending.put(true) }

    /// Returns the URL of a path.
    ///
    /// - Parameter host: another name of loopback gives another origin, with its own concurrency limit.
    func url(_ path: String, host: String = "127.0.0.1") -> String { "http://\(host):\(port)/\(path)" }

    /// Waits until the journal satisfies a condition.
    func await(_ isSo: (Journal) -> Bool) async {
        while true {
            let (value, version) = journal.current
            if isSo(value) { return }
            await journal.changed(since: version)
        }
    }
}
