internal import CLinux
internal import Glibc

/// Stream sockets of the Unix domain, unix(7). Calls do not block unless stated. All descriptors are close-on-exec.
public enum UnixSocket {
    /// Result of a read or write.
    public enum TransferResult: Equatable, Sendable {
        case bytesTransferred(Int)
        /// The call would block.
        case wouldBlock
        /// The connection has ended.
        case connectionEnded
    }

    /// Credentials of the peer: of the process that connected or listened.
    public struct Credentials: Equatable, Sendable {
        /// Process ID; 0 if the process is not visible in this PID namespace.
        public let pid: Int32
        /// Effective user ID.
        public let uid: UInt32
    }

    /// Connections that may wait for accept: the kernel's maximum, where libzmq's default is 100.
    private static let backlog: Int32 = 4_096

    /// Mode of a listener's file: for this user, or for all users.
    private static func socketFileMode(isOpen: Bool) -> mode_t { isOpen ? 0o666 : 0o600 }

    /// Creates a listening socket at `path`, replacing an existing file there.
    ///
    /// - Parameter isOpen: Whether all users can connect to it, and not only this one.
    /// - Throws: `SystemError`; `ENAMETOOLONG` for a path of more than 107 bytes.
    public static func listen(at path: String, isOpen: Bool = false) throws(SystemError) -> Int32 {
        let descriptor = try make()
        _ = unsafe unlink(path)
        // The file gets the mode of the socket, unix(7). A change of the umask would affect other threads.
        guard fchmod(descriptor, socketFileMode(isOpen: false)) == 0,
            unsafe linux_bind_unix(descriptor, path, path.utf8.count) == 0
        else {
            let error = SystemError("bind a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        guard Glibc.listen(descriptor, backlog) == 0 else {
            let error = SystemError("listen on a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        // The umask of the broker may have removed the permissions of other users.
        do throws(SystemError) {
            if isOpen { try setOpenToAllUsers(true, path: path) }
        } catch {
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Sets which users can connect to the listener at `path`.
    public static func setOpenToAllUsers(_ isOpen: Bool, path: String) throws(SystemError) {
        guard unsafe chmod(path, socketFileMode(isOpen: isOpen)) == 0 else {
            throw SystemError("chmod of a Unix socket")
        }
    }

    /// Listens with a socket of the service manager. Clients then see this process as its owner, and the backlog is
    /// ours.
    public static func listen(onInherited descriptor: Int32) throws(SystemError) {
        guard fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0, fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0,
            Glibc.listen(descriptor, backlog) == 0
        else { throw SystemError("listen on the socket of the service manager") }
    }

    /// Returns whether a descriptor is a listening stream socket that was bound to `path`.
    public static func isListener(_ descriptor: Int32, at path: String) -> Bool {
        unsafe linux_is_listener(descriptor, path, path.utf8.count) != 0
    }

    /// Returns a socket that is connected to the listener at `path`.
    ///
    /// - Parameter listeners: Users who may listen there; nil for this user alone.
    /// - Throws: `SystemError`; `ENOENT` or `ECONNREFUSED` without a listener, `EAGAIN` if its backlog is full,
    ///   `EACCES` if another user listens.
    public static func connect(to path: String, ownedBy listeners: Set<UInt32>? = nil) throws(SystemError) -> Int32 {
        let descriptor = try make()
        guard unsafe linux_connect_unix(descriptor, path, path.utf8.count) == 0 else {
            let error = SystemError("connect a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        // The folder was safe when it was checked; the kernel knows the listener's user at this moment.
        let listener = credentials(of: descriptor)?.uid
        guard let listener, listeners?.contains(listener) ?? (listener == geteuid()) else {
            Glibc.close(descriptor)
            throw SystemError("connect a Unix socket", number: EACCES)
        }
        return descriptor
    }

    /// Returns a socket that is connected to the listener at an abstract name of this process.
    ///
    /// - Parameter name: name without its leading zero byte.
    /// - Throws: `SystemError`; `EACCES` if another process listens there.
    public static func connect(abstract name: String) throws(SystemError) -> Int32 {
        let descriptor = try make()
        guard unsafe linux_connect_abstract(descriptor, name, name.utf8.count) == 0 else {
            let error = SystemError("connect a Unix socket")
            Glibc.close(descriptor)
            throw error
        }
        guard credentials(of: descriptor)?.pid == getpid() else {
            Glibc.close(descriptor)
            throw SystemError("connect a Unix socket", number: EACCES)
        }
        return descriptor
    }

    /// Returns two sockets that are connected to each other.
    public static func makePair() throws(SystemError) -> (Int32, Int32) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw SystemError("socketpair") }
        return (ends[0], ends[1])
    }

    /// Accepts the next connection. Returns nil if none is pending or the pending one has ended.
    ///
    /// - Throws: `SystemError`; `EMFILE` or `ENFILE` without a free descriptor.
    public static func accept(_ listener: Int32) throws(SystemError) -> Int32? {
        let descriptor = linux_accept(listener)
        if descriptor >= 0 { return descriptor }
        let error = SystemError("accept a connection")
        guard [EAGAIN, EINTR, ECONNABORTED].contains(error.number) else { throw error }
        return nil
    }

    /// Returns the peer's credentials; nil if the kernel does not report them.
    public static func credentials(of descriptor: Int32) -> Credentials? {
        var pid: Int32 = 0
        var uid: UInt32 = 0
        guard unsafe linux_peer_credentials(descriptor, &pid, &uid) == 0 else { return nil }
        return Credentials(pid: pid, uid: uid)
    }

    /// Reads available bytes into `target`, which must not be empty.
    @unsafe public static func receive(
        _ descriptor: Int32, into target: UnsafeMutableRawBufferPointer
    ) -> TransferResult {
        while true {
            let count = unsafe recv(descriptor, target.baseAddress, target.count, Int32(MSG_DONTWAIT))
            if count > 0 { return .bytesTransferred(count) }
            if count == 0 { return .connectionEnded }
            if errno == EAGAIN { return .wouldBlock }
            guard errno == EINTR else { return .connectionEnded }
        }
    }

    /// Writes as much of `source` as the kernel accepts. `source` must not be empty.
    @unsafe public static func send(_ descriptor: Int32, _ source: UnsafeRawBufferPointer) -> TransferResult {
        let flags = Int32(MSG_DONTWAIT | MSG_NOSIGNAL)
        while true {
            let count = unsafe Glibc.send(descriptor, source.baseAddress, source.count, flags)
            if count >= 0 { return .bytesTransferred(count) }
            if errno == EAGAIN { return .wouldBlock }
            guard errno == EINTR else { return .connectionEnded }
        }
    }

    /// Maximum number of bytes copied per call where the kernel cannot send from a file.
    private static let copyBufferBytes = 65_536

    /// Sends a part of a file as far as the kernel accepts it, without a copy where the file system supports that.
    ///
    /// - Parameter byteCount: Number of bytes from `offset`, at least 1.
    /// - Returns: `.connectionEnded` also for a file without these bytes: the receiver could not find the next message.
    public static func sendFile(
        _ descriptor: Int32, file: Int32, fromOffset offset: Int, byteCount: Int
    ) -> TransferResult {
        while true {
            let sent = linux_send_file_part(file, descriptor, offset, UInt(byteCount))
            if sent > 0 { return .bytesTransferred(sent) }
            switch errno {
            case _ where sent == 0: return .connectionEnded
            case EAGAIN: return .wouldBlock
            case EINTR: continue
            case EINVAL, ENOSYS, EOPNOTSUPP:
                return sendCopied(descriptor, file, offset, min(byteCount, copyBufferBytes))
            default: return .connectionEnded
            }
        }
    }

    private static func sendCopied(_ descriptor: Int32, _ file: Int32, _ offset: Int, _ count: Int) -> TransferResult {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = unsafe pread(file, &bytes, count, off_t(offset))
        guard read > 0 else { return .connectionEnded }
        return unsafe bytes.withUnsafeBytes {
            unsafe send(descriptor, UnsafeRawBufferPointer(rebasing: $0[..<read]))
        }
    }

    /// Sets the size of the kernel's send buffer, within the limit of the system (`net.core.wmem_max`).
    public static func setSendBuffer(_ descriptor: Int32, bytes: Int32) {
        linux_set_send_buffer(descriptor, bytes)
    }

    /// Blocks until the kernel accepts more output, at most `milliseconds`. For a process that is about to exit.
    public static func waitUntilWritable(_ descriptor: Int32, milliseconds: Int32) {
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = unsafe poll(&entry, 1, milliseconds)
    }

    /// Shuts a connection down in both directions; its descriptor stays open.
    public static func shutDown(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_RDWR))
    }

    /// Ends the output of a connection; its input continues.
    public static func endOutput(_ descriptor: Int32) {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    /// Closes a descriptor.
    public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }

    private static func make() throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        return descriptor
    }
}
