internal import CLinux
internal import Glibc

/// Lines between two processes of a family, both ways: a pair of Unix sockets that keep lines apart, unix(7).
///
/// Sending never waits: what the other end does not take yet is kept here, so a sender that can wait does so while
/// `hasBacklog`, and is told by `onRoom`. What was taken reaches the other end even if this process is killed.
public final class LineChannel {
    /// Bytes of a line at most.
    public static let lineBytes = 16_384

    /// Called when what was kept has left.
    public var onRoom: () -> Void = {}

    private let descriptor: Int32
    private let loop: EventLoop
    private let onLine: (String) -> Void
    private var registration: EventLoop.Registration?
    private var backlog: [String] = []

    /// Two connected ends, both close-on-exec: one for a child to inherit, see ``ChildProcess/spawn(_:_:inheriting:)``.
    public static func makePair() throws(SystemError) -> (own: Int32, child: Int32) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw SystemError("socketpair") }
        return (ends[0], ends[1])
    }

    /// Takes `descriptor` over, and closes it with itself.
    ///
    /// - Parameter onLine: called for each line, from the loop.
    public init(
        _ descriptor: Int32, loop: EventLoop, onLine: @escaping (String) -> Void
    ) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        self.onLine = onLine
        registration = try loop.add(descriptor, .readable) { [weak self] readiness in
            if readiness.contains(.writable) { self?.flush() }
            self?.takeLines()
        }
    }

    deinit {
        end()
        Glibc.close(descriptor)
    }

    /// Whether lines wait for the other end to take some.
    public var hasBacklog: Bool { !backlog.isEmpty }

    /// Sends lines in their order. None is empty or longer than `lineBytes`.
    public func send(_ lines: [String]) {
        precondition(
            lines.allSatisfy { (1...Self.lineBytes).contains($0.utf8.count) }, "a line is empty or too long to be read")
        guard registration != nil else { return }
        backlog += lines
        flush()
    }

    /// Takes what has come, in this call: the last words of a process that has ended.
    public func takeLines() {
        while registration != nil {
            switch Self.receive(descriptor, wait: false) {
            case .line(let line): onLine(line)
            case .nothing: return
            case .end: end()
            }
        }
    }

    /// Waits for the next line. For a process that has no loop yet.
    ///
    /// - Returns: nil when the other end is gone.
    public static func awaitLine(_ descriptor: Int32) -> String? {
        while true {
            switch receive(descriptor, wait: true) {
            case .line(let line): return line
            case .nothing: continue
            case .end: return nil
            }
        }
    }

    private enum Received {
        case line(String)
        case nothing
        case end
    }

    private static func receive(_ descriptor: Int32, wait: Bool) -> Received {
        var bytes = [UInt8](repeating: 0, count: lineBytes)
        let flags = wait ? 0 : Int32(MSG_DONTWAIT)
        let count = unsafe recv(descriptor, &bytes, bytes.count, flags)
        if count > 0 { return .line(String(decoding: bytes[..<count], as: UTF8.self)) }
        return count < 0 && (errno == EINTR || errno == EAGAIN) ? .nothing : .end
    }

    private func flush() {
        var sent = 0
        while sent < backlog.count {
            let bytes = Array(backlog[sent].utf8)
            let flags = Int32(MSG_DONTWAIT | MSG_NOSIGNAL)
            let count = unsafe Glibc.send(descriptor, bytes, bytes.count, flags)
            if count >= 0 {
                sent += 1
            } else if errno == EAGAIN {
                break
            } else if errno != EINTR {
                end()
                return
            }
        }
        backlog.removeFirst(sent)
        watchForRoom()
        if sent > 0, backlog.isEmpty { onRoom() }
    }

    private func watchForRoom() {
        guard let registration else { return }
        do throws(SystemError) {
            try loop.change(registration, to: backlog.isEmpty ? .readable : [.readable, .writable])
        } catch {
            // A descriptor that is watched can be watched otherwise, unless memory is out: then nothing is sent any
            // more.
            end()
        }
    }

    /// The other end is gone.
    private func end() {
        if let registration { loop.remove(registration) }
        registration = nil
        backlog = []
    }
}
