internal import DequeModule
internal import EarshotLoop

/// Bounds of the connections that have not proved a key: in all, of one network, and in a second.
///
/// Anybody can open such connections. The oldest of a network gives way to a newer one of the same network, so one
/// network cannot exclude others. A flood leaves each handshake at least half a second.
struct AdmissionGate {
    /// Decision about the next connection.
    enum Decision: Equatable {
        case admit
        /// Leave it in the kernel until this time, or until a handshake ends.
        case wait(LoopTime?)
    }

    /// Maximum number of handshakes at a time. Each costs five descriptors and some 50 KiB.
    static let mostHandshakes = 512
    /// Maximum number of one network: an address of IPv4, or 64 bits of IPv6.
    static let mostOfNetwork = 256
    /// Maximum number of connections accepted in a second, of which each costs about 0.5 ms.
    static let mostPerSecond = 500
    /// Maximum number accepted at once after a pause.
    static let mostAtOnce = 50
    private static let price = 1_000_000_000 / Int64(mostPerSecond)
    private static let mostCredit = price * Int64(mostAtOnce)

    private struct Network: Hashable {
        let prefix: [UInt8]

        init(_ address: TCPSocket.Address) {
            switch address {
            case .four(let bytes): prefix = bytes
            case .six(let bytes, _): prefix = Array(bytes.prefix(8))
            }
        }
    }

    /// Handshakes of each network in the order of their begin.
    private var networks: [Network: Deque<UInt64>] = [:]
    private var addresses: [UInt64: Network] = [:]
    /// Connections that may be accepted now, in nanoseconds of their share of a second.
    private var credit = mostCredit
    private var refilled: LoopTime

    init(now: LoopTime) { refilled = now }

    /// Number of handshakes.
    var count: Int { addresses.count }

    /// Whether a connection may be accepted now.
    mutating func decision(now: LoopTime) -> Decision {
        guard count < Self.mostHandshakes else { return .wait(nil) }
        credit = min(Self.mostCredit, credit + max(0, now.nanoseconds - refilled.nanoseconds))
        refilled = now
        guard credit >= Self.price else { return .wait(LoopTime(nanoseconds: now.nanoseconds + Self.price - credit)) }
        return .admit
    }

    /// Adds an accepted connection.
    ///
    /// - Returns: the connection that gives way to it; nil for none.
    mutating func connectionAccepted(_ number: UInt64, from address: TCPSocket.Address) -> UInt64? {
        credit -= Self.price
        let network = Network(address)
        let oldest = networks[network].flatMap { $0.count >= Self.mostOfNetwork ? $0.first : nil }
        if let oldest { ended(oldest) }
        networks[network, default: []].append(number)
        addresses[number] = network
        return oldest
    }

    /// Removes a connection whose handshake has ended. No effect if it was removed.
    mutating func ended(_ number: UInt64) {
        guard let network = addresses.removeValue(forKey: number) else { return }
        networks[network]?.removeAll { $0 == number }
        if networks[network]?.isEmpty == true { networks[network] = nil }
    }
}
