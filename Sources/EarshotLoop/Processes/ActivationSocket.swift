internal import CLinux
internal import Glibc

/// Listening socket that the service manager opened for this process: sd_listen_fds(3).
///
/// The manager listens before the process runs, and starts it for the first connection. Connections wait in the
/// backlog.
public struct ActivationSocket: Sendable {
    /// First descriptor that the manager passes.
    private static let firstDescriptor: Int32 = 3

    /// Descriptor of the listener, close-on-exec.
    public let descriptor: Int32
    private let socketPath: String
    private let socketFile: FileIdentity?

    /// Whether the path still names the file of the listener.
    public var isInPlace: Bool { socketFile != nil && FileIdentity(path: socketPath) == socketFile }

    /// Reads the manager's variables and removes them from the environment. Must be called before other threads start.
    ///
    /// - Parameter path: Path at which the manager must listen.
    /// - Returns: nil if the manager passed no sockets.
    /// - Throws: `SystemError` if it listens elsewhere.
    public static func takeFromEnvironment(at path: String) throws(SystemError) -> ActivationSocket? {
        let process = takeEnvironmentVariable("LISTEN_PID")
        let count = takeEnvironmentVariable("LISTEN_FDS") ?? 0
        unsafe unsetenv("LISTEN_FDNAMES")
        guard process == getpid(), count > 0 else { return nil }
        let passed = firstDescriptor..<firstDescriptor + min(count, 1_024)
        for descriptor in passed { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        for descriptor in passed where UnixSocket.isListener(descriptor, at: path) {
            return ActivationSocket(descriptor: descriptor, socketPath: path, socketFile: FileIdentity(path: path))
        }
        throw SystemError("use the socket of the service manager, which must listen at \(path)", number: ENOTSOCK)
    }

    private static func takeEnvironmentVariable(_ variable: String) -> Int32? {
        defer { unsafe unsetenv(variable) }
        return unsafe getenv(variable).flatMap { Int32(unsafe String(cString: $0)) }
    }
}
