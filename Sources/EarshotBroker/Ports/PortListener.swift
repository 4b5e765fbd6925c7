internal import EarshotLoop
internal import Logging

/// The listening socket of a `StreamPort`: it creates the socket's file, and accepts a bounded number of connections in
/// a pass.
final class PortListener {
    /// Maximum number of connections accepted in one pass.
    private static let acceptsPerPass = 256
    /// Time without accepting connections after descriptors ran out.
    private static let acceptPause = Duration.milliseconds(100)

    let socketPath: String
    private let loop: EventLoop
    private let logger: Logger
    private var descriptor: Int32
    /// Identity of the socket's file; nil if the file disappeared immediately.
    private var socketFile: FileIdentity?
    private var registration: EventLoop.Registration?
    /// Whether connections may be waiting to be accepted.
    private(set) var mayHavePendingConnections = false

    /// - Parameter inheritedSocket: Socket that listens at the path already; nil to create one.
    init(_ path: String, inheritedSocket: Int32?, _ loop: EventLoop, _ logger: Logger) throws {
        self.socketPath = path
        self.loop = loop
        self.logger = logger
        if let inheritedSocket {
            try UnixSocket.listen(onInherited: inheritedSocket)
            descriptor = inheritedSocket
            mayHavePendingConnections = true
        } else {
            descriptor = try UnixSocket.listen(at: path)
        }
        socketFile = FileIdentity(path: path)
        try watchDescriptor()
    }

    deinit {
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
    }

    /// Whether the path still refers to the socket.
    var isInPlace: Bool { socketFile != nil && FileIdentity(path: socketPath) == socketFile }

    /// Listens at the path again. The folder must belong to this user alone.
    ///
    /// - Parameter accept: Accepts connections in the old socket's backlog.
    func recreateListener(isOpen: Bool, accept: () -> Void) throws {
        let next = try UnixSocket.listen(at: socketPath, isOpen: isOpen)
        mayHavePendingConnections = true
        while mayHavePendingConnections { accept() }
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
        descriptor = next
        socketFile = FileIdentity(path: socketPath)
        try watchDescriptor()
    }

    private func watchDescriptor() throws {
        registration = try loop.add(descriptor, .readable) { [unowned self] _ in mayHavePendingConnections = true }
    }

    /// Accepts waiting connections, at most as many as one pass may.
    ///
    /// - Returns: Error after which it stops for a while; nil without one. Existing connections are served.
    func acceptPendingConnections(_ admit: (Int32) throws(SystemError) -> Void) -> SystemError? {
        guard mayHavePendingConnections else { return nil }
        for _ in 0..<Self.acceptsPerPass {
            do throws(SystemError) {
                guard let accepted = try UnixSocket.accept(descriptor) else {
                    mayHavePendingConnections = false
                    return nil
                }
                try admit(accepted)
            } catch {
                mayHavePendingConnections = false
                stop()
                return error
            }
        }
        return nil
    }

    private func stop() {
        if let registration { loop.remove(registration) }
        registration = nil
        _ = loop.setTimer(after: Self.acceptPause) { [unowned self] in
            guard registration == nil else { return }
            do { try watchDescriptor() } catch {
                logger.error(
                    "cannot accept connections any more", metadata: ["socket": "\(socketPath)", "error": "\(error)"])
            }
        }
    }
}
