internal import CLinux
internal import Glibc

/// Users of the programs at the other ends of TCP connections of this machine, from the kernel: sock_diag(7).
///
/// Each query names one connection, so its cost does not depend on the number of sockets. The socket is opened once, so
/// queries also work in a process that can open no further one.
public final class SocketOwners {
    /// Constants of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
    private static let (sockDiag, byFamily, request) = (Int32(4), UInt16(20), UInt16(1))
    private static let (headBytes, requestBytes, answerBytes) = (16, 56, 72)
    /// States in which a socket has a program: established, and closed by one side.
    private static let connectedStates: Set<UInt8> = [1, 4, 5, 8]
    /// The ID that a user namespace shows for all users that it does not map.
    private static let overflowUserID: UInt32 = 65_534

    private let descriptor: Int32
    private var sequence: UInt32 = 0

    /// - Throws: `SystemError` if the kernel or a filter permits no such socket.
    public init() throws(SystemError) {
        let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        descriptor = socket(AF_NETLINK, kind, Self.sockDiag)
        guard descriptor >= 0 else { throw SystemError("open a socket for sock_diag") }
    }

    deinit { close(descriptor) }

    /// Returns the user of the socket at the other end of a connection.
    ///
    /// - Returns: nil if the connection is not of this machine, its other end is gone, or its user is unknown here.
    public func userID(atOtherEndOf connection: Int32) -> UInt32? {
        guard let own = unsafe Self.connectionEnd(of: connection, getsockname),
            let other = unsafe Self.connectionEnd(of: connection, getpeername),
            own.family == other.family
        else { return nil }
        sequence &+= 1
        var message: [UInt8] = []
        func append(_ value: some FixedWidthInteger) {
            unsafe withUnsafeBytes(of: value) { unsafe message.append(contentsOf: $0) }
        }
        append(UInt32(Self.headBytes + Self.requestBytes))
        append(Self.byFamily)
        append(Self.request)
        append(sequence)
        append(UInt32(0))
        message += [UInt8(other.family), UInt8(IPPROTO_TCP), 0, 0]
        append(UInt32.max)
        let ports = other.port + own.port
        message += ports + other.address + own.address
        append(UInt32(0))
        // No cookie: the addresses are enough.
        append(UInt64.max)
        guard unsafe send(descriptor, message, message.count, 0) == message.count, let answer = receiveAnswer(),
            Self.connectedStates.contains(answer[1]), answer[4..<8].elementsEqual(ports),
            Self.isSameAddress(answer[8..<24], as: other), Self.isSameAddress(answer[24..<40], as: own)
        else { return nil }
        let (user, inode) = (Self.readUInt32(answer, at: 64), Self.readUInt32(answer, at: 68))
        return inode == 0 || user == Self.overflowUserID ? nil : user
    }

    /// Whether an address in an answer is that of an end. A socket of IPv6 with a connection of IPv4, as programs in
    /// Java open it, has the address in its mapped form.
    private static func isSameAddress(
        _ address: ArraySlice<UInt8>, as end: (family: Int32, port: [UInt8], address: [UInt8])
    ) -> Bool {
        if address.elementsEqual(end.address) { return true }
        let mapped = [UInt8](repeating: 0, count: 10) + [0xff, 0xff] + end.address.prefix(4)
        return end.family == AF_INET && address.elementsEqual(mapped)
    }

    /// Returns the answer to the last request, without answers to earlier ones.
    private func receiveAnswer() -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while true {
            let count = unsafe recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            guard count >= Self.headBytes else { return nil }
            guard Self.readUInt32(buffer, at: 8) == sequence else { continue }
            let type = UInt16(buffer[4]) | UInt16(buffer[5]) << 8
            guard type == Self.byFamily, count >= Self.headBytes + Self.answerBytes else { return nil }
            return Array(buffer[Self.headBytes..<count])
        }
    }

    private static func readUInt32(_ bytes: [UInt8], at offset: Int) -> UInt32 {
        (0..<4).reduce(0) { $0 | UInt32(bytes[offset + $1]) << (8 * UInt32($1)) }
    }

    /// Port, and address of 16 bytes, of one end of a connection, in network order.
    private static func connectionEnd(
        of descriptor: Int32, _ call: (Int32, UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
    ) -> (family: Int32, port: [UInt8], address: [UInt8])? {
        var storage = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let code = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe call(descriptor, $0, &size) }
        }
        guard code == 0 else { return nil }
        let family = Int32(storage.ss_family)
        return unsafe withUnsafeBytes(of: &storage) { bytes in
            let port = unsafe [UInt8](bytes[2..<4])
            switch family {
            case AF_INET: return (family, port, unsafe [UInt8](bytes[4..<8]) + [UInt8](repeating: 0, count: 12))
            case AF_INET6: return (family, port, unsafe [UInt8](bytes[8..<24]))
            default: return nil
            }
        }
    }
}
