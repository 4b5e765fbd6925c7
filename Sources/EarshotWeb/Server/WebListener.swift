internal import EarshotLoop

/// Listening socket, and a bound on accepted connections.
final class WebListener {
    /// Pause when the process has no free descriptor.
    private static let acceptPause = Duration.milliseconds(500)

    /// Address as a URL or a path.
    let address: String
    /// Port; nil for a Unix socket.
    let port: UInt16?
    private let loop: EventLoop
    private let descriptor: Int32
    /// Takes ownership of an accepted connection.
    private let admitConnection: (Int32) throws(SystemError) -> Void
    private var registration: EventLoop.Registration?
    private var pauseEnd: TimerID?
    /// Connections accepted in a pass of the loop.
    private let acceptsPerPass: Int

    init(
        _ address: ListenAddress, isOpen: Bool = false, perPass: Int = 64, loop: EventLoop,
        admit: @escaping (Int32) throws(SystemError) -> Void
    ) throws(SystemError) {
        self.loop = loop
        self.acceptsPerPass = perPass
        self.admitConnection = admit
        (descriptor, self.address, port) = try address.listen(isOpenToAllUsers: isOpen)
        try watchDescriptor()
    }

    func close() {
        if let registration { loop.remove(registration) }
        if let pauseEnd { loop.cancelTimer(pauseEnd) }
        UnixSocket.close(descriptor)
    }

    private func watchDescriptor() throws(SystemError) {
        registration = try loop.add(descriptor, .readable) { [unowned self] _ in acceptConnections() }
    }

    private func acceptConnections() {
        do throws(SystemError) {
            for _ in 0..<acceptsPerPass {
                guard let descriptor = try UnixSocket.accept(descriptor) else { return }
                if port != nil { TCPSocket.keepAlive(descriptor) }
                do throws(SystemError) { try admitConnection(descriptor) } catch {
                    UnixSocket.close(descriptor)
                    throw error
                }
            }
        } catch {
            pauseAccepting()
        }
    }

    /// Stops accepting for a while. The listener would otherwise wake the loop without end.
    private func pauseAccepting() {
        if let registration { loop.remove(registration) }
        registration = nil
        pauseEnd = loop.setTimer(after: Self.acceptPause) { [weak self] in
            guard let self else { return }
            do throws(SystemError) { try watchDescriptor() } catch { pauseAccepting() }
        }
    }
}
