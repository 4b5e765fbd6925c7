internal import DequeModule
internal import EarshotLoop

/// Bounds of the connections that have not proved a key: in all, of one network, and in a second.
///
/// Anybody can open such connections. A newer connection replaces the oldest one of the same network, so one
/// network cannot exclude others. A flood leaves each handshake at least half a second.
struct AdmissionGate {
    /// Decision about the next connection.
    enum Decision: Equatable {
        case admit
        /// Leave it in the kernel until this time, or until a handshake ends.
        case waitUntil(LoopTime?)
    }

    /// Maximum number of handshakes at a time. Each costs five descriptors and some 50 KiB.
    static let maximumHandshakes = 512
    /// Maximum number of one network: an address of IPv4, or 64 bits of IPv6.
    static let maximumHandshakesPerNetwork = 256
    /// Maximum number of connections accepted in a second, of which each costs about 0.5 ms.
    static let maximumAcceptsPerSecond = 500
    /// Maximum number accepted at once after a pause.
    static let maximumAcceptBurst = 50
    private static let nanosecondsPerAccept = 1_000_000_000 / Int64(maximumAcceptsPerSecond)
    private static let maximumCreditNanoseconds = nanosecondsPerAccept * Int64(maximumAcceptBurst)

    private struct Network: Hashable {
        let prefix: [UInt8]

        init(_ address: TCPSocket.Address) {
            switch address {
            case .ipv4(let bytes): prefix = bytes
            case .ipv6(let bytes, _): prefix = Array(bytes.prefix(8))
            }
        }
    }

    /// Handshakes of each network in the order of their begin.
    private var handshakesByNetwork: [Network: Deque<UInt64>] = [:]
    private var networksByConnection: [UInt64: Network] = [:]
    /// Connections that may be accepted now, in nanoseconds of their share of a second.
    private var creditNanoseconds = maximumCreditNanoseconds
    private var creditRefilledAt: LoopTime

    init(now: LoopTime) { creditRefilledAt = now }

    /// Number of handshakes.
    var handshakeCount: Int { networksByConnection.count }

    /// Whether a connection may be accepted now.
    mutating func decision(now: LoopTime) -> Decision {
        guard handshakeCount < Self.maximumHandshakes else { return .waitUntil(nil) }
        creditNanoseconds = min(
            Self.maximumCreditNanoseconds, creditNanoseconds + max(0, now.nanoseconds - creditRefilledAt.nanoseconds))
        creditRefilledAt = now
        guard creditNanoseconds >= Self.nanosecondsPerAccept else {
            return .waitUntil(LoopTime(nanoseconds: now.nanoseconds + Self.nanosecondsPerAccept - creditNanoseconds))
        }
        return .admit
    }

    /// Adds an accepted connection.
    ///
    /// - Returns: The connection that it replaces; nil for none.
    mutating func connectionAccepted(_ number: UInt64, from address: TCPSocket.Address) -> UInt64? {
        creditNanoseconds -= Self.nanosecondsPerAccept
        let network = Network(address)
        let oldest = handshakesByNetwork[network].flatMap {
            $0.count >= Self.maximumHandshakesPerNetwork ? $0.first : nil
        }
        if let oldest { handshakeEnded(oldest) }
        handshakesByNetwork[network, default: []].append(number)
        networksByConnection[number] = network
        return oldest
    }

    /// Removes a connection whose handshake has ended. No effect if it was removed.
    mutating func handshakeEnded(_ number: UInt64) {
        guard let network = networksByConnection.removeValue(forKey: number) else { return }
        handshakesByNetwork[network]?.removeAll { $0 == number }
        if handshakesByNetwork[network]?.isEmpty == true { handshakesByNetwork[network] = nil }
    }
}
