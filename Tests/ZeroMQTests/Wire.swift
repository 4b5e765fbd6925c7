import Glibc
import Testing
import ZeroMQ

/// Waits until `probe` returns a value, woken by `descriptor`, and polls at least every 10 ms, because any call on a
/// socket may clear its event. Fails after a minute.
func awaited<Value: ~Copyable>(_ descriptor: Int32, _ probe: () throws -> Value?) throws -> Value {
    for _ in 0..<6_000 {
        if let value = try probe() { return value }
        wait(descriptor, milliseconds: 10)
    }
    throw TimedOut()
}

/// Waits until `descriptor` is readable; false after the timeout.
@discardableResult
func wait(_ descriptor: Int32, milliseconds: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return unsafe poll(&entry, 1, milliseconds) == 1
}

struct TimedOut: Error {}

/// Unique ipc endpoint in the system's folder for temporary files; its file is deleted with it.
final class TestEndpoint {
    let path: String
    var name: String { "ipc://\(path)" }

    init() {
        let folder = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
        path = "\(folder)/earshot-\(getpid())-\(UInt32.random(in: 0 ... .max))"
    }

    deinit { unsafe unlink(path) }
}

extension Socket {
    /// Sends as soon as a connection exists.
    func awaitSend(_ bytes: [UInt8], more: Bool = false) throws {
        try awaitSent { try send(bytes, more: more) }
    }

    func awaitSend(_ message: inout MessageFrame) throws {
        try awaitSent { try send(&message) }
    }

    private func awaitSent(_ send: () throws -> SendOutcome) throws {
        for _ in 0..<6_000 {
            // Processes the new connection and its event, which a send does only occasionally.
            _ = try readiness()
            if try send() == .sent { return }
            wait(descriptor, milliseconds: 10)
        }
        throw TimedOut()
    }

    func awaitReceive() throws -> MessageFrame {
        try awaited(descriptor) { try receive() }
    }

    /// Receives a router's message: the peer's routing ID and the frames behind it.
    func awaitMessage() throws -> [[UInt8]] {
        var parts = Multipart(capacity: 8)
        for _ in 0..<6_000 {
            if try receive(into: &parts) { return (0..<parts.count).map { parts.bytes($0) } }
            wait(descriptor, milliseconds: 10)
        }
        throw TimedOut()
    }
}
