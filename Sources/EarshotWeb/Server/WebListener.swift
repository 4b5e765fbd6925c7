internal import EarshotLoop

/// Listening socket, and a bound on accepted connections.
final class WebListener {
    /// Pause when the process has no free descriptor.
    private static let pause = Duration.milliseconds(500)

    /// Address as a URL or a path.
    let address: String
    /// Port; nil for a Unix socket.
    let port: UInt16?
    private let loop: EventLoop
    private let descriptor: Int32
    /// Takes ownership of an accepted connection.
    private let admit: (Int32) throws(SystemError) -> Void
    private var registration: EventLoop.Registration?
    /// Connections accepted in a pass of the loop.
    private let perPass: Int

    init(
        _ address: ListenAddress, isOpen: Bool = false, perPass: Int = 64, loop: EventLoop,
        admit: @escaping (Int32) throws(SystemError) -> Void
    ) throws(SystemError) {
        self.loop = loop
        self.perPass = perPass
        self.admit = admit
        (descriptor, self.address, port) = try address.listen(isOpen: isOpen)
        try watch()
    }

    func close() {
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
    }

    private func watch() throws(SystemError) {
        registration = try loop.add(descriptor, .readable) { [unowned self] _ in accept() }
    }

    private func accept() {
        do throws(SystemError) {
            for _ in 0..<perPass {
                guard let descriptor = try UnixSocket.accept(descriptor) else { return }
                if port != nil { TCPSocket.keepAlive(descriptor) }
                do throws(SystemError) { try admit(descriptor) } catch {
                    UnixSocket.close(descriptor)
                    throw error
                }
            }
        } catch {
            stop()
        }
    }

    /// Stops to accept for a while. The listener would otherwise wake the loop without end.
    private func stop() {
        guard let registration else { return }
        loop.remove(registration)
        self.registration = nil
        loop.setTimer(after: Self.pause) { [weak self] in
            guard let self else { return }
            do throws(SystemError) { try watch() } catch { stop() }
        }
    }
}
