internal import CLinux
internal import Glibc

/// Stream sockets of TCP over IPv4 and IPv6. All descriptors are close-on-exec and do not block.
///
/// ``UnixSocket`` reads, writes and accepts, since its calls are the same for each kind of stream.
public enum TCPSocket {
    /// Numeric address of one end.
    public enum Address: Hashable, Sendable, CustomStringConvertible {
        /// Bytes in network order.
        case ipv4([UInt8])
        /// - Parameter zone: interface of a link-local address, by name or number; empty without one.
        case ipv6([UInt8], zone: String = "")

        /// Parses a numeric address; nil for any other text. A link-local one of IPv6 may have a zone, `fe80::1%eth0`:
        /// RFC 4007, section 11.
        public init?(_ text: String) {
            var four = in_addr()
            var six = in6_addr()
            let parts = text.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
            if unsafe inet_pton(AF_INET, text, &four) == 1 {
                self = .ipv4(unsafe withUnsafeBytes(of: &four) { unsafe [UInt8]($0) })
            } else if unsafe inet_pton(AF_INET6, String(parts[0]), &six) == 1 {
                let bytes = unsafe withUnsafeBytes(of: &six) { unsafe [UInt8]($0) }
                self = .ipv6(bytes, zone: parts.count > 1 ? String(parts[1]) : "")
                let isLinkLocal = bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
                guard parts.count == 1 || isLinkLocal && Self.isValidZone(parts[1]) else { return nil }
            } else {
                return nil
            }
        }

        /// Parses the host of a URL: an address of IPv4, or one of IPv6 in brackets.
        public init?(urlHost host: Substring) {
            let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
            self.init(String(isBracketed ? host.dropFirst().dropLast() : host))
            switch self {
            case .ipv4: guard !isBracketed else { return nil }
            case .ipv6: guard isBracketed else { return nil }
            }
        }

        private static func isValidZone(_ text: Substring) -> Bool {
            (1..<Int(IF_NAMESIZE)).contains(text.utf8.count)
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"%/:[]".utf8.contains($0) }
        }

        /// Number of the interface that a zone names; 0 without a zone.
        static func interfaceIndex(ofZone zone: String) throws(SystemError) -> UInt32 {
            guard !zone.isEmpty else { return 0 }
            let number = unsafe if_nametoindex(zone)
            guard let found = number > 0 ? number : UInt32(zone) else {
                throw SystemError("find the interface \(zone)", number: ENODEV)
            }
            return found
        }

        public var description: String {
            var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
            var end = ""
            switch self {
            case .ipv4(let bytes): _ = unsafe inet_ntop(AF_INET, bytes, &text, socklen_t(text.count))
            case .ipv6(let bytes, let zone):
                _ = unsafe inet_ntop(AF_INET6, bytes, &text, socklen_t(text.count))
                if !zone.isEmpty { end = "%\(zone)" }
            }
            return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self) + end
        }
    }

    /// Listens at an address. IPv6 addresses accept no connections of IPv4.
    ///
    /// - Parameters:
    ///   - port: port; 0 selects a free one.
    ///   - backlog: maximum number of connections that wait for accept.
    /// - Returns: the socket, and its port.
    public static func listen(
        _ address: Address, port: UInt16, backlog: Int32
    ) throws(SystemError) -> (descriptor: Int32, port: UInt16) {
        switch address {
        case .ipv4(let bytes):
            var end = sockaddr_in()
            end.sin_family = sa_family_t(AF_INET)
            end.sin_port = port.bigEndian
            unsafe withUnsafeMutableBytes(of: &end.sin_addr) { unsafe $0.copyBytes(from: bytes) }
            let descriptor = try listen(AF_INET, &end, backlog)
            return (descriptor, UInt16(bigEndian: end.sin_port))
        case .ipv6(let bytes, let zone):
            var end = sockaddr_in6()
            end.sin6_scope_id = try Address.interfaceIndex(ofZone: zone)
            end.sin6_family = sa_family_t(AF_INET6)
            end.sin6_port = port.bigEndian
            unsafe withUnsafeMutableBytes(of: &end.sin6_addr) { unsafe $0.copyBytes(from: bytes) }
            let descriptor = try listen(AF_INET6, &end, backlog)
            return (descriptor, UInt16(bigEndian: end.sin6_port))
        }
    }

    /// Address of the other end of a connection; nil if that end has closed it.
    public static func peerAddress(of descriptor: Int32) -> Address? {
        guard !linux_has_hung_up(descriptor) else { return nil }
        var storage = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let code = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getpeername(descriptor, $0, &size)
            }
        }
        guard code == 0 else { return nil }
        let family = Int32(storage.ss_family)
        return unsafe withUnsafeBytes(of: &storage) { bytes in
            switch family {
            case AF_INET: .ipv4(unsafe [UInt8](bytes[4..<8]))
            case AF_INET6: .ipv6(unsafe [UInt8](bytes[8..<24]))
            default: nil
            }
        }
    }

    /// Sends small messages at once, and bounds the bytes that the kernel holds beyond those in flight.
    public static func configureConnection(_ descriptor: Int32, maximumUnsentBytes: Int32) {
        linux_prepare_tcp(descriptor, maximumUnsentBytes)
    }

    /// Makes the kernel end a connection whose peer has vanished: after 2 minutes.
    public static func keepAlive(_ descriptor: Int32) { linux_keep_alive(descriptor, 60, 15, 4) }

    /// Makes the kernel reset the connection when its descriptor is closed, instead of ending it in order.
    public static func resetOnClose(_ descriptor: Int32) {
        var option = linger(l_onoff: 1, l_linger: 0)
        _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    private static func listen<End>(_ family: Int32, _ end: inout End, _ backlog: Int32) throws(SystemError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(family, kind, 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        var yes: Int32 = 1
        let word = socklen_t(MemoryLayout<Int32>.size)
        _ = unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, word)
        if family == AF_INET6 { _ = unsafe setsockopt(descriptor, Int32(IPPROTO_IPV6), IPV6_V6ONLY, &yes, word) }
        var size = socklen_t(MemoryLayout<End>.size)
        let code = unsafe withUnsafeMutablePointer(to: &end) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                guard unsafe bind(descriptor, $0, size) == 0, Glibc.listen(descriptor, backlog) == 0 else {
                    return Int32(-1)
                }
                return unsafe getsockname(descriptor, $0, &size)
            }
        }
        guard code == 0 else {
            let error = SystemError("listen")
            close(descriptor)
            throw error
        }
        return descriptor
    }
}
