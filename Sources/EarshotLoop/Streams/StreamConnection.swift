internal import CLinux
internal import Glibc

/// Connections to servers that are not part of the bus. They do not block and are close-on-exec.
public enum StreamConnection {
    /// Starts to connect over TCP. The descriptor becomes writable when the attempt has ended; see
    /// ``connectError(of:)``.
    public static func connect(to address: TCPSocket.Address, port: UInt16) throws(SystemError) -> Int32 {
        switch address {
        case .ipv4(let bytes):
            var end = sockaddr_in()
            end.sin_family = sa_family_t(AF_INET)
            end.sin_port = port.bigEndian
            unsafe withUnsafeMutableBytes(of: &end.sin_addr) { unsafe $0.copyBytes(from: bytes) }
            return try startConnecting(AF_INET, &end)
        case .ipv6(let bytes, let zone):
            var end = sockaddr_in6()
            end.sin6_scope_id = try TCPSocket.Address.interfaceIndex(ofZone: zone)
            end.sin6_family = sa_family_t(AF_INET6)
            end.sin6_port = port.bigEndian
            unsafe withUnsafeMutableBytes(of: &end.sin6_addr) { unsafe $0.copyBytes(from: bytes) }
            return try startConnecting(AF_INET6, &end)
        }
    }

    /// Connects to the socket at `path`, whichever user listens there. The caller trusts the folder.
    public static func connect(to path: String) throws(SystemError) -> Int32 {
        var end = sockaddr_un()
        end.sun_family = sa_family_t(AF_UNIX)
        let bytes = ByteText.cString(path)
        guard bytes.count <= MemoryLayout.size(ofValue: end.sun_path) else {
            throw SystemError("connect a Unix socket", number: ENAMETOOLONG)
        }
        unsafe withUnsafeMutableBytes(of: &end.sun_path) { target in
            unsafe bytes.withUnsafeBytes { unsafe target.copyMemory(from: $0) }
        }
        return try startConnecting(AF_UNIX, &end)
    }

    /// Error of an attempt that has ended; nil if the connection exists.
    public static func connectError(of descriptor: Int32) -> SystemError? {
        var number: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard unsafe getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &number, &size) == 0 else {
            return SystemError("getsockopt")
        }
        return number == 0 ? nil : SystemError("connect", number: number)
    }

    private static func startConnecting<End>(_ family: Int32, _ end: inout End) throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(family, kind, 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        if family != AF_UNIX {
            var yes: Int32 = 1
            _ = unsafe setsockopt(
                descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
        }
        let size = socklen_t(MemoryLayout<End>.size)
        let code = unsafe withUnsafePointer(to: &end) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.connect(descriptor, $0, size)
            }
        }
        guard code == 0 || errno == EINPROGRESS else {
            let error = SystemError("connect")
            close(descriptor)
            throw error
        }
        return descriptor
    }
}
