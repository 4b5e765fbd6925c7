import Glibc

/// DNS server on the loopback interface that runs inside the test's loop. It responds to a question with IPv4
/// addresses, with "no such name", or not at all.
final class FakeNameServer {
    enum Answer {
        case addresses([[UInt8]], timeToLive: UInt32)
        case noSuchName
        case serverFailure
        case silence
    }

    let port: UInt16
    let descriptor: Int32
    /// Names of the received questions. A name appears for A and for AAAA.
    private(set) var questions: [String] = []
    private let answer: Answer

    init(_ answer: Answer) {
        self.answer = answer
        descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let bound = descriptor
        _ = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe bind(bound, $0, length) == 0 && getsockname(bound, $0, &length) == 0
            }
        }
        port = UInt16(bigEndian: address.sin_port)
    }

    deinit {
        close(descriptor)
    }

    func ready() {
        var packet = [UInt8](repeating: 0, count: 1500)
        var peer = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let count = unsafe withUnsafeMutablePointer(to: &peer) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe recvfrom(descriptor, &packet, packet.count, 0, $0, &length)
            }
        }
        guard count > 12, let reply = reply(to: Array(packet[..<count])) else { return }
        _ = unsafe withUnsafePointer(to: &peer) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe sendto(descriptor, reply, reply.count, 0, $0, length)
            }
        }
    }

    /// Builds a response according to RFC 1035, section 4: header, original question, answers.
    private func reply(to query: [UInt8]) -> [UInt8]? {
        var end = 12
        var labels: [String] = []
        while query[end] != 0 {
            let size = Int(query[end])
            labels.append(String(decoding: query[(end + 1)...(end + size)], as: UTF8.self))
            end += size + 1
        }
        let question = query[12..<(end + 5)]
        questions.append(labels.joined(separator: "."))
        let asksIPv4 = query[end + 2] == 1
        var code: UInt8 = 0
        var records: [UInt8] = []
        var count: UInt8 = 0
        switch answer {
        case .silence: return nil
        case .noSuchName: code = 3
        case .serverFailure: code = 2
        case .addresses(let addresses, let timeToLive):
            for address in addresses where asksIPv4 {
                let seconds = (0..<4).map { UInt8(truncatingIfNeeded: timeToLive >> (24 - 8 * $0)) }
                records += [0xc0, 12, 0, 1, 0, 1] + seconds + [0, 4] + address
                count += 1
            }
        }
        return Array(query[..<2]) + [0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0] + question + records
    }
}
