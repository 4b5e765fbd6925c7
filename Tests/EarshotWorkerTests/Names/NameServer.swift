import EarshotLoop
import Glibc

/// DNS server on the test's own loop.
final class NameServer {
    /// Answers of the server.
    enum Habit: Equatable {
        /// Every name has the address 127.0.0.1.
        case knowsAll
        /// Every name has this number of addresses, from 127.0.0.1 on.
        case knowsMany(UInt8)
        /// No name exists.
        case knowsNone
        case isSilent
    }

    let port: UInt16
    /// Number of queries for IPv4 addresses.
    private(set) var questions = 0
    private let habit: Habit
    private let descriptor: Int32

    init(_ loop: EventLoop, _ habit: Habit) throws {
        self.habit = habit
        descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        port = Loopback.bind(descriptor)
        _ = try loop.add(descriptor, .readable) { [weak self] _ in self?.ready() }
    }

    deinit { close(descriptor) }

    private func ready() {
        var packet = [UInt8](repeating: 0, count: 1500)
        var peer = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let count = unsafe withUnsafeMutablePointer(to: &peer) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe recvfrom(descriptor, &packet, packet.count, 0, $0, &length)
            }
        }
        guard count > 12, habit != .isSilent else { return }
        let reply = reply(to: Array(packet[..<count]))
        _ = unsafe withUnsafePointer(to: &peer) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe sendto(descriptor, reply, reply.count, 0, $0, length)
            }
        }
    }

    /// Last bytes of the IPv4 addresses of every name.
    private var lastBytes: [UInt8] {
        switch habit {
        case .knowsAll: [1]
        case .knowsMany(let count): Array(1...count)
        case .knowsNone, .isSilent: []
        }
    }

    /// Returns the reply: RFC 1035, section 4, with the header, a copy of the question, and the answers.
    private func reply(to query: [UInt8]) -> [UInt8] {
        var end = 12
        while query[end] != 0 { end += Int(query[end]) + 1 }
        let isIPv4 = query[end + 2] == 1
        if isIPv4 { questions += 1 }
        let answers = (isIPv4 ? lastBytes : []).map { byte -> [UInt8] in
            [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, byte]
        }
        let head: [UInt8] = [0x81, lastBytes.isEmpty ? 0x83 : 0x80, 0, 1, 0, UInt8(answers.count), 0, 0, 0, 0]
        return Array(query[..<2]) + head + query[12..<(end + 5)] + answers.flatMap { $0 }
    }
}
