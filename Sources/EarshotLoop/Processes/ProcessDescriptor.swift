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
    public func sendSignal(_ signal: Int32) -> Bool {
        linux_pidfd_send_signal(descriptor, signal) == 0
    }
}

/// Restrictions of a process that must not outlive its parent.
public enum ParentProcess {
    /// Makes the kernel send `signal` to this process when its parent dies: PR_SET_PDEATHSIG, prctl(2).
    ///
    /// - Parameter expected: Process ID of the parent, as passed by the parent.
    /// - Returns: false if the parent is already dead. No signal will follow, so the caller should exit.
    public static func setParentDeathSignal(parentPid expected: Int32, signal: Int32) throws(SystemError) -> Bool {
        guard linux_set_parent_death_signal(signal) == 0 else { throw SystemError("prctl") }
        return getppid() == expected
    }

    /// Prevents this process from gaining privileges by an exec of a set-user-ID program: PR_SET_NO_NEW_PRIVS.
    public static func forbidNewPrivileges() throws(SystemError) {
        guard linux_set_no_new_privileges() == 0 else { throw SystemError("prctl") }
    }
}

/// Name of this process in process listings, which broker, worker, gateway and door set at their start.
public enum ProcessName {
    /// Names the calling thread and threads it starts later: PR_SET_NAME, prctl(2). The main thread's name is the
    /// process's.
    ///
    /// - Parameter name: Truncated to 15 bytes.
    public static func setThreadName(_ name: StaticString) {
        // Cannot fail for a valid address.
        _ = unsafe linux_set_name(name.utf8Start)
    }
}
