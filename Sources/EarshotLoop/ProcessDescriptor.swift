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
