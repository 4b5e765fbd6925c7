internal import CLinux
internal import Glibc

/// A hold on one process, which a later process of the same number cannot be mistaken for: pidfd_open(2).
public final class ProcessDescriptor {
    /// The number it was opened by.
    public let pid: Int32
    /// Readable when the process has ended, be it reaped or not.
    public let descriptor: Int32

    /// Opens the process `pid`, any of this system that can be seen from here.
    ///
    /// - Throws: `SystemError`, `ESRCH` when there is no such process.
    public init(pid: Int32) throws(SystemError) {
        self.pid = pid
        descriptor = linux_pidfd_open(pid)
        guard descriptor >= 0 else { throw SystemError("pidfd_open") }
    }

    /// Opens the process at the other end of a connected Unix socket.
    ///
    /// The kernel remembers the process itself, so a later one of its number is never opened. Linux before 6.5 tells
    /// the number alone, and that is opened.
    ///
    /// - Parameter pid: its number, SO_PEERCRED of unix(7).
    /// - Throws: `SystemError`, `ESRCH` or `EINVAL` when it has ended and was waited for.
    public init(peerOf socket: Int32, pid: Int32) throws(SystemError) {
        self.pid = pid
        let known = linux_peer_pidfd(socket)
        descriptor = known < 0 && errno == ENOPROTOOPT ? linux_pidfd_open(pid) : known
        guard descriptor >= 0 else { throw SystemError("open the process of a socket") }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether the process has ended.
    public var hasEnded: Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let count = unsafe poll(&entry, 1, 0)
            if count >= 0 { return count > 0 }
            guard errno == EINTR else { return false }
        }
    }

    /// Sends a signal; 0 only asks whether one could be sent.
    ///
    /// - Returns: false if the process has ended or belongs to somebody else.
    @discardableResult
    public func send(_ signal: Int32) -> Bool {
        linux_pidfd_send_signal(descriptor, signal) == 0
    }
}
