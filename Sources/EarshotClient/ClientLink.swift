internal import EarshotLoop
internal import ZeroMQ

/// One connection: a socket and its monitor in the loop, thrown away as a whole, so that nothing said over the old one
/// survives into the next.
final class ClientLink {
    let socket: Socket
    private let monitor: Monitor
    private let loop: EventLoop
    private var registrations: [EventLoop.Registration] = []
    /// Whether the monitor may have something to tell. Nothing but reading it eats its wakes.
    private var isMonitorDue = true

    init(_ context: borrowing Context, endpoint: String, loop: EventLoop) throws {
        var options = SocketOptions()
        // More than the largest window with answers between: only one who does not read reaches it, and then the broker
        // notices.
        options.receiveHighWaterMark = 8192
        // The outbox is ours: what the socket has not taken is not lost with it.
        options.sendHighWaterMark = 1000
        self.loop = loop
        socket = try context.socket(.dealer, options)
        monitor = try Monitor.make(of: socket)
        // The descriptors only end the sleep: the pass's hook looks at both sockets.
        registrations = [
            try loop.add(socket.descriptor, .readable) { _ in },
            try loop.add(monitor.descriptor, .readable) { [unowned self] _ in isMonitorDue = true },
        ]
        try socket.connect(endpoint)
    }

    /// Takes both sockets out of the loop; to be called before the last reference goes.
    ///
    /// - Parameter linger: milliseconds that what was said last may take to leave.
    func close(linger: Int32 = 0) {
        // A socket that is not told so drops it, and that is all.
        if linger > 0 { try? socket.linger(milliseconds: linger) }
        for registration in registrations { loop.remove(registration) }
        registrations = []
    }

    /// Reads the monitor to its end and tells whether the connection broke.
    func wasDisconnected() throws(ZeroMQError) -> Bool {
        guard isMonitorDue else { return false }
        isMonitorDue = false
        var isGone = false
        while let event = try monitor.next() {
            switch event.kind {
            case .disconnected, .handshakeFailed: isGone = true
            case .accepted, .connected, .connectRetried, .handshakeSucceeded, .closed, .acceptFailed: break
            }
        }
        return isGone
    }

    /// Whether a message waits that no wake will tell of, as any call but for the one that found none may have eaten it.
    func hasPending() throws(ZeroMQError) -> Bool { try socket.readiness().contains(.readable) }
}
