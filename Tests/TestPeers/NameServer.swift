import EarshotLoop
import Glibc

/// DNS server on the loopback interface that runs inside the test's loop.
final class NameServer {
    enum Answer {
        /// IPv4 addresses of every name.
        case addresses([[UInt8]], timeToLive: UInt32 = 60)
        case noSuchName
        case serverFailure
        case silence

        /// Returns an answer with this number of addresses, from 127.0.0.1 on.
        static func loopback(_ count: UInt8 = 1) -> Answer { .addresses((1...count).map { [127, 0, 0, $0] }) }
    }

    let port: UInt16
    let descriptor: Int32
    /// Names of the received questions. A name appears for A and for AAAA.
    private(set) var questions: [String] = []
    /// Number of questions for IPv4 addresses.
    private(set) var addressQuestions = 0
    private let answer: Answer

    /// - Parameter loop: event loop of the server; nil for a test that calls `ready`.
    init(_ answer: Answer, _ loop: EventLoop? = nil) throws {
        self.answer = answer
        (descriptor, port) = try Loopback.bind(SOCK_DGRAM)
        _ = try loop?.add(descriptor, .readable) { [weak self] _ in self?.ready() }
    }

    deinit { close(descriptor) }

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
        questions.append(labels.joined(separator: "."))
        let isIPv4 = query[end + 2] == 1
        if isIPv4 { addressQuestions += 1 }
        var code: UInt8 = 0
        var records: [[UInt8]] = []
        switch answer {
        case .silence: return nil
        case .noSuchName: code = 3
        case .serverFailure: code = 2
        case .addresses(let addresses, let timeToLive):
            let seconds = (0..<4).map { UInt8(truncatingIfNeeded: timeToLive >> (24 - 8 * $0)) }
            records = (isIPv4 ? addresses : []).map { [0xc0, 12, 0, 1, 0, 1] + seconds + [0, 4] + $0 }
        }
        let head: [UInt8] = [0x81, 0x80 | code, 0, 1, 0, UInt8(records.count), 0, 0, 0, 0]
        return Array(query[..<2]) + head + query[12..<(end + 5)] + records.flatMap { $0 }
    }
}
