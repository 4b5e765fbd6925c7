internal import CLinux
internal import Glibc

/// Bidirectional channel of lines between related processes: a pair of Unix sockets that preserve message boundaries,
/// unix(7).
///
/// Sending never blocks. Lines that the peer does not accept yet are queued. A sender that can wait does so while
/// `hasBacklog`; `onBacklogSent` signals the end of the backlog. Accepted lines reach the peer even if this process is
/// killed.
public final class LineChannel {
    /// Maximum length of a line in bytes.
    public static let maximumLineBytes = 16_384

    /// Called when the backlog has been sent.
    public var onBacklogSent: () -> Void = {}

    private let descriptor: Int32
    private let loop: EventLoop
    private let onLine: (String) -> Void
    private var registration: EventLoop.Registration?
    private var unsentLines: [String] = []

    /// Creates two connected sockets, both close-on-exec. One is for a child to inherit:
    /// ``ChildProcess/spawn(_:_:streams:inheriting:variables:)``.
    public static func makePair() throws(SystemError) -> (own: Int32, child: Int32) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw SystemError("socketpair") }
        return (ends[0], ends[1])
    }

    /// Takes ownership of `descriptor`, and closes it with this object.
    ///
    /// - Parameter onLine: Called from the loop for each line.
    public init(
        _ descriptor: Int32, loop: EventLoop, onLine: @escaping (String) -> Void
    ) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        self.onLine = onLine
        registration = try loop.add(descriptor, .readable) { [weak self] readiness in
            if readiness.contains(.writable) { self?.flush() }
            self?.deliverPendingLines()
        }
    }

    deinit {
        closeChannel()
        Glibc.close(descriptor)
    }

    /// Whether lines wait until the peer accepts more.
    public var hasBacklog: Bool { !unsentLines.isEmpty }

    /// Sends lines in order. Each is between 1 and `maximumLineBytes` bytes long.
    public func send(_ lines: [String]) {
        precondition(
            lines.allSatisfy { (1...Self.maximumLineBytes).contains($0.utf8.count) },
            "a line is empty or too long to be read")
        guard registration != nil else { return }
        unsentLines += lines
        flush()
    }

    /// Delivers all pending lines within this call, for example the last ones of a process that has ended.
    public func deliverPendingLines() {
        while registration != nil {
            switch Self.receive(descriptor, wait: false) {
            case .line(let line): onLine(line)
            case .wouldBlock: return
            case .peerClosed: closeChannel()
            }
        }
    }

    /// Blocks until the next line, for a process without a loop.
    ///
    /// - Returns: nil if the peer has closed the channel.
    public static func awaitLine(_ descriptor: Int32) -> String? {
        while true {
            switch receive(descriptor, wait: true) {
            case .line(let line): return line
            case .wouldBlock: continue
            case .peerClosed: return nil
            }
        }
    }

    /// Sends a line, for a process without a loop. A peer that has closed the channel does not get it.
    public static func send(_ line: String, to descriptor: Int32) {
        let bytes = Array(line.utf8)
        while unsafe Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) < 0, errno == EINTR {}
    }

    private enum ReceiveResult {
        case line(String)
        case wouldBlock
        case peerClosed
    }

    private static func receive(_ descriptor: Int32, wait: Bool) -> ReceiveResult {
        var bytes = [UInt8](repeating: 0, count: maximumLineBytes)
        let flags = wait ? 0 : Int32(MSG_DONTWAIT)
        let count = unsafe recv(descriptor, &bytes, bytes.count, flags)
        if count > 0 { return .line(String(decoding: bytes[..<count], as: UTF8.self)) }
        return count < 0 && (errno == EINTR || errno == EAGAIN) ? .wouldBlock : .peerClosed
    }

    private func flush() {
        var sent = 0
        while sent < unsentLines.count {
            let bytes = Array(unsentLines[sent].utf8)
            let flags = Int32(MSG_DONTWAIT | MSG_NOSIGNAL)
            let count = unsafe Glibc.send(descriptor, bytes, bytes.count, flags)
            if count >= 0 {
                sent += 1
            } else if errno == EAGAIN {
                break
            } else if errno != EINTR {
                closeChannel()
                return
            }
        }
        unsentLines.removeFirst(sent)
        watchForWritability()
        if sent > 0, unsentLines.isEmpty { onBacklogSent() }
    }

    private func watchForWritability() {
        guard let registration else { return }
        do throws(SystemError) {
            try loop.changeInterest(of: registration, to: unsentLines.isEmpty ? .readable : [.readable, .writable])
        } catch {
            // Changing the interest of a registered descriptor fails only without memory. The channel closes then.
            closeChannel()
        }
    }

    /// Closes the channel after the peer has closed it or an error occurred.
    private func closeChannel() {
        if let registration { loop.remove(registration) }
        registration = nil
        unsentLines = []
    }
}
