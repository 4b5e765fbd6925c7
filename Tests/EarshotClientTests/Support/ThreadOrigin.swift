import EarshotLoop
import Glibc

@testable import EarshotClient
@testable import TestPeers

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

    let journal = Observed(Journal())
    private let port: UInt16
    private let ending: Mailbox<Bool>

    /// Starts an origin.
    ///
    /// - Parameter pages: responses by path with its slash.
    init(pages: [String: Page] = [:]) throws {
        let socket = try Loopback.listen()
        port = socket.port
        ending = try Mailbox()
        let (journal, ending) = (journal, ending)
        try BackgroundThread.run {
            do {
                let loop = try EventLoop()
                let origin = try LoopbackOrigin(loop, socket: socket) { request in
                    guard let page = Self.page(request, pages) else {
                        journal.change { $0.hanging += 1 }
                        return .init(bytes: [])
                    }
                    journal.change { $0.answered += 1 }
                    return .init(
                        "HTTP/1.1 \(page.status) Page\r\nContent-Length: \(page.count)\r\n\r\n",
                        body: [UInt8](repeating: UInt8(ascii: "x"), count: page.count))
                }
                origin.onClose = { request in
                    if !request.isEmpty, Self.page(request, pages) == nil { journal.change { $0.hanging -= 1 } }
                }
                _ = try loop.add(ending.descriptor, .readable) { _ in loop.stop() }
                try loop.run()
                withExtendedLifetime(origin) {}
            } catch {
                preconditionFailure("the origin failed: \(error)")
            }
        }
    }

    deinit { ending.put(true) }

    /// Returns the response to a request; nil if it gets none.
    private static func page(_ request: String, _ pages: [String: Page]) -> Page? {
        let path = request.split(separator: " ")[1]
        return pages[String(path)] ?? Int(path.dropFirst().prefix { $0 != "?" }).map { Page(count: $0) }
    }

    /// Returns the URL of a path.
    ///
    /// - Parameter host: another name of loopback gives another origin, with its own concurrency limit.
    func url(_ path: String, host: String = "127.0.0.1") -> String { "http://\(host):\(port)/\(path)" }

    /// Waits until the journal satisfies a condition.
    func await(_ isSo: (Journal) -> Bool) async {
        while true {
            let (value, version) = journal.versionedValue
            if isSo(value) { return }
            await journal.changed(since: version)
        }
    }
}
