internal import CLinux
internal import Glibc

/// Name of a host, which the system's resolver turns into addresses: DNS, `/etc/hosts`, and other sources of
/// nsswitch.conf(5).
public struct HostName: Hashable, Sendable, CustomStringConvertible {
    /// Reason why a name has no address.
    public struct Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// The name.
        public let name: HostName
        /// Sentence of the resolver.
        let reason: String

        /// Creates a failure with a sentence of the resolver.
        public init(_ name: HostName, _ reason: String) {
            self.name = name
            self.reason = reason
        }

        public var description: String { "the host name \(name) does not resolve: \(reason)" }
    }

    /// Maximum length in bytes, and that of one label: RFC 1035, section 2.3.4.
    private static let maximumBytes = (name: 253, label: 63)

    public let description: String

    /// Nil for a text of another form, and for a numeric address: the last label of a name has a letter.
    public init?(_ text: String) {
        let labels = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard text.utf8.count <= Self.maximumBytes.name, let last = labels.last, last.contains(where: Self.isLetter),
            labels.allSatisfy({ label in
                (1...Self.maximumBytes.label).contains(label.count) && label.first != UInt8(ascii: "-")
                    && label.allSatisfy { Self.isLetter($0) || (0x30...0x39).contains($0) || "-_".utf8.contains($0) }
            })
        else { return nil }
        description = text
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7a).contains(byte | 0x20) }

    /// Queries the resolver, which blocks for up to half a minute.
    ///
    /// - Returns: addresses in the resolver's order, at least one.
    public func addresses() throws(Failure) -> [TCPSocket.Address] {
        var hints = unsafe addrinfo()
        unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = unsafe getaddrinfo(description, nil, &hints, &list)
        guard code == 0 else { throw Failure(self, unsafe String(cString: gai_strerror(code))) }
        defer { unsafe freeaddrinfo(list) }
        var addresses: [TCPSocket.Address] = []
        var next = unsafe list
        while let entry = unsafe next {
            let bytes = unsafe UnsafeRawBufferPointer(
                start: entry.pointee.ai_addr, count: Int(entry.pointee.ai_addrlen))
            let address: TCPSocket.Address? =
                switch unsafe entry.pointee.ai_family {
                case AF_INET: .ipv4(unsafe [UInt8](bytes[4..<8]))
                case AF_INET6: .ipv6(unsafe [UInt8](bytes[8..<24]))
                default: nil
                }
            if let address, !addresses.contains(address) { addresses.append(address) }
            unsafe next = unsafe entry.pointee.ai_next
        }
        guard !addresses.isEmpty else { throw Failure(self, "it has no address") }
        return addresses
    }
}

/// Look-up of a host's addresses on a thread of its own, because the resolver blocks.
public final class HostLookup {
    /// Result of a look-up.
    public typealias Outcome = Result<[TCPSocket.Address], HostName.Failure>

    /// Name that is looked up.
    public let name: HostName
    private let loop: EventLoop
    private let answers: Mailbox<Outcome>
    private var registration: EventLoop.Registration?

    /// Starts the look-up.
    ///
    /// - Parameter onEnd: called on the loop, once.
    public init(
        _ name: HostName, on loop: EventLoop, onEnd: @escaping (Outcome) -> Void
    ) throws(SystemError) {
        self.name = name
        self.loop = loop
        let answers = try Mailbox<Outcome>()
        self.answers = answers
        registration = try loop.add(answers.descriptor, .readable) { [unowned self] _ in
            for outcome in self.answers.takeAll() { onEnd(outcome) }
        }
        // The thread may outlive this object, and keeps the mailbox.
        try BackgroundThread.run {
            let outcome: Outcome
            do throws(HostName.Failure) { outcome = .success(try name.addresses()) } catch { outcome = .failure(error) }
            answers.put(outcome)
        }
    }

    deinit { if let registration { loop.remove(registration) } }
}
