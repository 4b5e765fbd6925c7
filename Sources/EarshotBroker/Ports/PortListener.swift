internal import EarshotLoop
internal import Logging

/// The listening socket of a `StreamPort`: it creates the socket's file, and accepts a bounded number of connections in
/// a pass.
final class PortListener {
    /// Maximum number of connections accepted in one pass.
    private static let acceptsPerPass = 256
    /// Time without accepting connections after descriptors ran out.
    private static let pause = Duration.milliseconds(100)

    let path: String
    private let loop: EventLoop
    private let logger: Logger
    private var descriptor: Int32
    /// Identity of the socket's file; nil if the file disappeared immediately.
    private var file: FileIdentity?
    private var registration: EventLoop.Registration?
    /// Whether connections may be waiting to be accepted.
    private(set) var hasWaitingConnections = false

    /// - Parameter opened: Socket that listens at the path already; nil to create one.
    init(_ path: String, opened: Int32?, _ loop: EventLoop, _ logger: Logger) throws {
        self.path = path
        self.loop = loop
        self.logger = logger
        if let opened {
            try UnixSocket.listen(with: opened)
            descriptor = opened
            hasWaitingConnections = true
        } else {
            descriptor = try UnixSocket.listen(at: path)
        }
        file = FileIdentity(path: path)
        try watch()
    }

    deinit {
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
    }

    /// Whether the path still refers to the socket.
    var isInPlace: Bool { file != nil && FileIdentity(path: path) == file }

    /// Listens at the path again. The folder must belong to this user alone.
    ///
    /// - Parameter accept: Accepts connections in the old socket's backlog.
    func listenAgain(isOpen: Bool, accept: () -> Void) throws {
        let next = try UnixSocket.listen(at: path, isOpen: isOpen)
        hasWaitingConnections = true
        while hasWaitingConnections { accept() }
        if let registration { loop.remove(registration) }
        UnixSocket.close(descriptor)
        descriptor = next
        file = FileIdentity(path: path)
        try watch()
    }

    private func watch() throws {
        registration = try loop.add(descriptor, .readable) { [unowned self] _ in hasWaitingConnections = true }
    }

    /// Accepts waiting connections, at most as many as one pass may.
    ///
    /// - Returns: Error after which it stops for a while; nil without one. Existing connections are served.
    func accept(_ admit: (Int32) throws(SystemError) -> Void) -> SystemError? {
        guard hasWaitingConnections else { return nil }
        for _ in 0..<Self.acceptsPerPass {
            do throws(SystemError) {
                guard let accepted = try UnixSocket.accept(descriptor) else {
                    hasWaitingConnections = false
                    return nil
                }
                try admit(accepted)
            } catch {
                hasWaitingConnections = false
                stop()
                return error
            }
        }
        return nil
    }

    private func stop() {
        if let registration { loop.remove(registration) }
        registration = nil
        _ = loop.setTimer(after: Self.pause) { [unowned self] in
            guard registration == nil else { return }
            do { try watch() } catch {
                logger.error(
                    "cannot accept connections any more", metadata: ["socket": "\(path)", "error": "\(error)"])
            }
        }
    }
}
