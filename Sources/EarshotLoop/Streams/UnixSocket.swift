internal import CLinux
internal import Glibc

/// Stream sockets of the Unix domain, unix(7): none of these calls waits, all descriptors are close-on-exec.
public enum UnixSocket {
    /// What a read or a write came to.
    public enum Transfer: Equatable, Sendable {
        case bytes(Int)
        /// The kernel has nothing, or takes nothing, now.
        case wouldBlock
        /// The other end is gone.
        case ended
    }

    /// Who is at the other end: who connected, or who listened.
    public struct Credentials: Equatable, Sendable {
        /// Its process; 0 for one that this one cannot see.
        public let pid: Int32
        /// Its effective user.
        public let uid: UInt32
    }

    /// How many may connect before they are accepted: libzmq's own number would be 100, the kernel's most is 4,096.
    private static let backlog: Int32 = 4_096

    /// A socket that listens at `path`, in the place of what is there; only this user can connect to it.
    ///
    /// - Throws: `SystemError`, `ENAMETOOLONG` for a path of more than 107 bytes.
    public static func listen(at path: String) throws(SystemError) -> Int32 {
        let descriptor = try make()
        _ = unsafe unlink(path)
        let mask = umask(0o177)
        let isBound = unsafe linux_bind_unix(descriptor, path, path.utf8.count) == 0
        let error = SystemError("bind a Unix socket")
        umask(mask)
        guard isBound else {
            Glibc.close(descriptor)
            throw error
        }
        guard Glibc.listen(descriptor, backlog) == 0 else {
            let error = SystemError("listen on a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Returns a socket that is connected to this user's listener at `path`.
    ///
    /// - Throws: `SystemError`, `ENOENT` or `ECONNREFUSED` when nobody listens, `EAGAIN` when too many wait there,
    ///   `EACCES` when another user listens.
    public static func connect(to path: String) throws(SystemError) -> Int32 {
        let descriptor = try make()
        guard unsafe linux_connect_unix(descriptor, path, path.utf8.count) == 0 else {
            let error = SystemError("connect a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        // The folder was this user's alone when it was looked at; the kernel knows who listens now.
        guard credentials(of: descriptor)?.uid == geteuid() else {
            Glibc.close(descriptor)
            throw SystemError("connect a Unix socket", number: EACCES)
        }
        return descriptor
    }

    /// The next connection of a socket that listens; nil when none waits, or the one that waited is gone.
    ///
    /// - Throws: `SystemError`, `EMFILE` or `ENFILE` when there is no descriptor for it.
    public static func accept(_ listener: Int32) throws(SystemError) -> Int32? {
        let descriptor = linux_accept(listener)
        if descriptor >= 0 { return descriptor }
        let error = SystemError("accept a connection")
        guard [EAGAIN, EINTR, ECONNABORTED].contains(error.number) else { throw error }
        return nil
    }

    /// Nil if the kernel does not tell.
    public static func credentials(of descriptor: Int32) -> Credentials? {
        var pid: Int32 = 0
        var uid: UInt32 = 0
        guard unsafe linux_peer_credentials(descriptor, &pid, &uid) == 0 else { return nil }
        return Credentials(pid: pid, uid: uid)
    }

    /// Reads what has come into `target`, which is not empty.
    @unsafe public static func receive(_ descriptor: Int32, into target: UnsafeMutableRawBufferPointer) -> Transfer {
        while true {
            let count = unsafe recv(descriptor, target.baseAddress, target.count, Int32(MSG_DONTWAIT))
            if count > 0 { return .bytes(count) }
            if count == 0 { return .ended }
            if errno == EAGAIN { return .wouldBlock }
            guard errno == EINTR else { return .ended }
        }
    }

    /// Writes as much of `source`, which is not empty, as the kernel takes.
    @unsafe public static func send(_ descriptor: Int32, _ source: UnsafeRawBufferPointer) -> Transfer {
        let flags = Int32(MSG_DONTWAIT | MSG_NOSIGNAL)
        while true {
            let count = unsafe Glibc.send(descriptor, source.baseAddress, source.count, flags)
            if count >= 0 { return .bytes(count) }
            if errno == EAGAIN { return .wouldBlock }
            guard errno == EINTR else { return .ended }
        }
    }

    /// Waits until the kernel takes more, for at most so many milliseconds. For a process that is about to end.
    public static func awaitRoom(_ descriptor: Int32, milliseconds: Int32) {
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&entry, 1, milliseconds)
    }

    /// Ends a connection in both directions; its descriptor stays open.
    public static func shutDown(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }

    /// Gives a descriptor back.
    public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }

    private static func make() throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        return descriptor
    }
}
