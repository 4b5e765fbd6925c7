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

    /// Whether only this machine, or only this user, can connect.
    public var isLocal: Bool {
        switch self {
        case .unix: true
        case .tcp(let host, _): Self.isLoopback(host) ?? false
        }
    }

    /// Returns whether a numeric address is one of loopback; nil if it is not a numeric address.
    private static func isLoopback(_ host: String) -> Bool? {
        var four = in_addr()
        if unsafe inet_pton(AF_INET, host, &four) == 1 { return UInt32(bigEndian: four.s_addr) >> 24 == 127 }
        var six = in6_addr()
        guard unsafe inet_pton(AF_INET6, host, &six) == 1 else { return nil }
        return unsafe withUnsafeBytes(of: &six) { bytes in
            unsafe bytes.dropLast().allSatisfy { $0 == 0 } && bytes[15] == 1
        }
    }

    /// Opens a listening socket.
    ///
    /// - Returns: the socket, and the address with the selected port.
    func listen() throws(SystemError) -> (descriptor: Int32, address: String) {
        switch self {
        case .unix(let path):
            try Self.requireUnused(path)
            return (try UnixSocket.listen(at: path), path)
        case .tcp(let host, let port): return try Self.listen(host, port)
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

    private static func listen(_ host: String, _ port: UInt16) throws(SystemError) -> (Int32, String) {
        var four = in_addr()
        if unsafe inet_pton(AF_INET, host, &four) == 1 {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port.bigEndian
            address.sin_addr = four
            let descriptor = try bind(AF_INET, &address)
            try named(descriptor, &address)
            return (descriptor, "http://\(host):\(UInt16(bigEndian: address.sin_port))/")
        }
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = port.bigEndian
        guard unsafe inet_pton(AF_INET6, host, &address.sin6_addr) == 1 else {
            throw SystemError("parse the address", number: EINVAL)
        }
        let descriptor = try bind(AF_INET6, &address)
        try named(descriptor, &address)
        return (descriptor, "http://[\(host)]:\(UInt16(bigEndian: address.sin6_port))/")
    }

    /// Connections that may wait for accept.
    private static let backlog: Int32 = 64

    private static func bind<Address>(_ family: Int32, _ address: inout Address) throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(family, kind, 0)
        guard descriptor >= 0 else { throw SystemError("socket", number: errno) }
        var yes: Int32 = 1
        _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        let size = socklen_t(MemoryLayout<Address>.size)
        let code = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.bind(descriptor, $0, size)
            }
        }
        guard code == 0, Glibc.listen(descriptor, backlog) == 0 else {
            let error = SystemError("listen", number: errno)
            close(descriptor)
            throw error
        }
        return descriptor
    }

    /// Fills in the address to which a socket is bound.
    private static func named<Address>(_ descriptor: Int32, _ address: inout Address) throws(SystemError) {
        var size = socklen_t(MemoryLayout<Address>.size)
        let code = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getsockname(descriptor, $0, &size)
            }
        }
        guard code == 0 else { throw SystemError("getsockname", number: errno) }
    }
}
