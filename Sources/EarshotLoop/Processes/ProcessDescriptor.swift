internal import CLinux
internal import Glibc

/// Reference to one process that a reused process ID cannot redirect: pidfd_open(2).
public final class ProcessDescriptor {
    /// Process ID with which it was opened.
    public let pid: Int32
    /// Readable after the process has ended, whether or not it was reaped.
    public let descriptor: Int32

    /// Opens any process visible in this PID namespace.
    ///
    /// - Throws: `SystemError`; `ESRCH` if there is no such process.
    public init(pid: Int32) throws(SystemError) {
        self.pid = pid
        descriptor = linux_pidfd_open(pid)
        guard descriptor >= 0 else { throw SystemError("pidfd_open") }
    }

    /// Opens the peer process of a connected Unix socket.
    ///
    /// The kernel records the process itself, so a reused ID is never opened. Linux before 6.5 reports only the process
    /// ID, which is opened instead.
    ///
    /// - Parameter pid: Process ID of the peer, SO_PEERCRED of unix(7).
    /// - Throws: `SystemError`; `ESRCH` or `EINVAL` if the process has ended and was reaped.
    public init(peerOf socket: Int32, pid: Int32) throws(SystemError) {
        self.pid = pid
        let known = linux_peer_pidfd(socket)
        descriptor = known < 0 && errno == ENOPROTOOPT ? linux_pidfd_open(pid) : known
        guard descriptor >= 0 else { throw SystemError("open the process of a socket") }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Returns whether a process has ended. A zombie counts as ended. A process that cannot be opened for another
    /// reason, such as a lack of descriptors, counts as running.
    public static func hasEnded(pid: Int32) -> Bool {
        do throws(SystemError) {
            return try ProcessDescriptor(pid: pid).hasEnded
        } catch {
            return error.number == ESRCH
        }
    }

    /// Whether the process has ended.
    public var hasEnded: Bool { awaitEnd(milliseconds: 0) }

    /// Blocks until the process has ended, at most for this time after the last signal to this process.
    ///
    /// - Returns: whether it has ended.
    @discardableResult
    public func awaitEnd(milliseconds: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let count = unsafe poll(&entry, 1, milliseconds)
            if count >= 0 { return count > 0 }
            guard errno == EINTR else { return false }
        }
    }

    /// Sends a signal; 0 only checks whether one could be sent.
    ///
    /// - Returns: false if the process has ended or belongs to another user.
    @discardableResult
    public func send(_ signal: Int32) -> Bool {
        linux_pidfd_send_signal(descriptor, signal) == 0
    }
}
