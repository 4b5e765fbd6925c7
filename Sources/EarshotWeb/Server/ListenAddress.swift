internal import EarshotLoop
internal import Glibc

/// Address at which the server listens.
public enum ListenAddress: Equatable, Sendable {
    /// Path of a Unix socket.
    case unix(String)
    /// Numeric IP address and port. Port 0 selects a free one.
    case tcp(host: String, port: UInt16)

    /// Parses `HOST:PORT` with a numeric host, `[IPV6]:PORT`, or the path of a Unix socket with a slash.
    public init?(_ text: String) {
        if text.contains("/") {
            guard (1...107).contains(text.utf8.count) else { return nil }
            self = .unix(text)
            return
        }
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]) else {
            return nil
        }
        var host = String(text[..<colon])
        if host == "localhost" { host = "127.0.0.1" }
        if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
        guard Self.isLoopback(host) != nil else { return nil }
        self = .tcp(host: host, port: port)
    }

    /// Whether the address is one of TCP.
    package var isTCP: Bool { if case .tcp = self { true } else { false } }

    /// Whether only this machine, or only this user, can connect.
    public var isLocal: Bool {
        switch self {
        case .unix: true
        case .tcp(let host, _): Self.isLoopback(host) ?? false
        }
    }

    /// Returns whether a numeric address is one of loopback; nil if it is not a numeric address.
    private static func isLoopback(_ host: String) -> Bool? {
        switch TCPSocket.Address(host) {
        case .ipv4(let bytes): bytes[0] == 127
        case .ipv6(let bytes, _): bytes.dropLast().allSatisfy { $0 == 0 } && bytes[15] == 1
        case nil: nil
        }
    }

    /// Opens a listening socket.
    ///
    /// - Parameter isOpenToAllUsers: whether all users can connect to a Unix socket.
    /// - Returns: the socket, and the address with the selected port.
    func listen(
        isOpenToAllUsers: Bool = false
    ) throws(SystemError) -> (descriptor: Int32, address: String, port: UInt16?) {
        switch self {
        case .unix(let path):
            try Self.requireUnused(path)
            return (try UnixSocket.listen(at: path, isOpen: isOpenToAllUsers), path, nil)
        case .tcp(let host, let port): return try Self.listenTCP(host: host, port: port)
        }
    }

    /// Throws unless the path is free, or has the socket of a server that has ended.
    private static func requireUnused(_ path: String) throws(SystemError) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return }
        guard status.st_mode & S_IFMT == S_IFSOCK else { throw SystemError("replace a file", number: EEXIST) }
        do throws(SystemError) {
            UnixSocket.close(try UnixSocket.connect(to: path))
        } catch {
            guard error.number == ECONNREFUSED else { throw error }
            return
        }
        throw SystemError("listen", number: EADDRINUSE)
    }

    private static func listenTCP(host: String, port: UInt16) throws(SystemError) -> (Int32, String, UInt16?) {
        guard let address = TCPSocket.Address(host) else { throw SystemError("parse the address", number: EINVAL) }
        let (descriptor, port) = try TCPSocket.listen(address, port: port, backlog: backlog)
        return (descriptor, "http://\(host.contains(":") ? "[\(host)]" : host):\(port)/", port)
    }

    /// Connections that may wait for accept.
    private static let backlog: Int32 = 1_024
}
