import EarshotLoop
import Glibc

/// Sockets on 127.0.0.1.
enum Loopback {
    /// Binds a socket to a port of the kernel's choice.
    static func bind(_ descriptor: Int32) -> UInt16 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        return isBound ? UInt16(bigEndian: address.sin_port) : 0
    }

    /// Returns a port that refuses connections. Its bound socket stays open, so that no process can listen on it.
    static func freePort() -> UInt16 { bind(socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)) }
}
