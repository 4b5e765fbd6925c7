import Glibc

/// Sockets on 127.0.0.1.
enum Loopback {
    struct Failure: Error {
        let call: String
        let number: Int32
    }

    /// Returns a listening socket on a port chosen by the kernel.
    static func listen(backlog: Int32 = 1024) throws -> (descriptor: Int32, port: UInt16) {
        let (descriptor, port) = try bind()
        guard Glibc.listen(descriptor, backlog) == 0 else { throw Failure(call: "listen", number: errno) }
        return (descriptor, port)
    }

    /// Returns a socket bound to a port chosen by the kernel, on which no other socket can listen.
    static func bind(_ kind: __socket_type = SOCK_STREAM) throws -> (descriptor: Int32, port: UInt16) {
        let descriptor = open(kind)
        guard descriptor >= 0 else { throw Failure(call: "socket", number: errno) }
        var address = address(port: 0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        guard isBound else { throw Failure(call: "bind", number: errno) }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    /// Returns a port that refuses connections. Its bound socket stays open, so that no process can listen on it.
    static func freePort() throws -> UInt16 { try bind().port }

    /// Starts to connect without awaiting the result.
    static func connect(port: UInt16) -> Int32 {
        let descriptor = open(SOCK_STREAM)
        var address = address(port: port)
        _ = unsafe withUnsafePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        return descriptor
    }

    /// Makes the next close send an RST.
    static func breakOnClose(_ descriptor: Int32) {
        var option = linger(l_onoff: 1, l_linger: 0)
        unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    private static func open(_ kind: __socket_type) -> Int32 {
        let flags = SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue
        return socket(AF_INET, Int32(kind.rawValue | flags), 0)
    }

    private static func address(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return address
    }
}
