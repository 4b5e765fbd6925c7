internal import EarshotHTTP

/// Choice of the next bus and of the pause before it, after failed and lost connections.
///
/// A lost connection is tried again at the same bus for some seconds, because only that bus has the session. Then the
/// buses follow in their order. A bus that drains ends, so the next one follows at once.
struct EndpointList {
    /// Next step after a connection ended.
    enum Step: Equatable {
        /// Connect to ``currentEndpoint`` after a pause in nanoseconds.
        case connect(after: Int64)
        /// No bus can accept this client, for this reason.
        case noEndpointLeft(BusEndpoint, LinkEnding)
    }

    /// Pauses between attempts to connect to a local bus.
    private static let localBackoff = Backoff(initialMilliseconds: 10, maximumMilliseconds: 100)
    /// Pauses between rounds through the buses of a network. A server that restarts must not meet all its clients at
    /// once, so half of each pause is random.
    private static let remoteBackoff = Backoff(initialMilliseconds: 50, maximumMilliseconds: 2_000)
    /// Time for which a lost bus is tried before others. A gateway restarts in about a second.
    private static let sameBusRetryMilliseconds = 3_000
    /// Failed handshakes in a row that mean a wrong key. A restarting gateway can fail one.
    private static let maximumFailedHandshakes = 3

    /// State of one bus.
    private struct Entry {
        let endpoint: BusEndpoint
        /// Whether it ever answered HELLO: then its server key is right.
        var hasAnswered = false
        /// Reason of the last failure; nil before one.
        var lastFailure: LinkEnding?
        /// Failed handshakes in a row.
        var failedHandshakes = 0

        /// Whether no later attempt can succeed without another key or address.
        var isPermanentlyFailed: Bool {
            switch lastFailure {
            case .refused: true
            case .handshakeInvalid: !hasAnswered
            case .handshakeFailed: !hasAnswered && failedHandshakes >= EndpointList.maximumFailedHandshakes
            case .unreachable, .connectionLost, .helloTimedOut, nil: false
            }
        }
    }

    private var entries: [Entry]
    private var currentIndex = 0
    /// Failed attempts since the last session.
    private(set) var failures = 0
    /// Time in milliseconds until which the lost bus is tried alone; nil before a loss.
    private var retrySameBusUntil: Int?
    /// Index of the bus that has the session; nil without one.
    private var sessionIndex: Int?

    /// - Parameter endpoints: buses in the order of preference; at least one.
    init(_ endpoints: [BusEndpoint]) {
        precondition(!endpoints.isEmpty, "a list of buses is empty")
        entries = endpoints.map { Entry(endpoint: $0) }
    }

    /// The bus of the present or next connection.
    var currentEndpoint: BusEndpoint { entries[currentIndex].endpoint }

    /// Whether another bus of the network may accept the client.
    var hasAlternativeBus: Bool {
        currentEndpoint.isRemote && entries.indices.contains { $0 != currentIndex && !entries[$0].isPermanentlyFailed }
    }

    /// Whether the session is on another bus than ``currentEndpoint``.
    var isSessionElsewhere: Bool { sessionIndex.map { $0 != currentIndex } ?? false }

    /// Reasons why buses have no connection: that of ``currentEndpoint`` first. Empty before a failure.
    var reportedFaults: [(BusEndpoint, LinkEnding)] {
        let others = entries.indices.filter { $0 != currentIndex }
        return ([currentIndex] + others).compactMap { index in
            entries[index].lastFailure.map { (entries[index].endpoint, $0) }
        }
    }

    /// Whether a host name is resolved to an address of IPv6 in the next attempt. libzmq uses one address only, so the
    /// families take turns.
    var usesIPv6: Bool { failures / entries.count % 2 == 1 }

    /// Handles a WELCOME.
    mutating func connected() {
        sessionIndex = currentIndex
        failures = 0
        retrySameBusUntil = nil
        entries[currentIndex].hasAnswered = true
        for other in entries.indices where !entries[other].isPermanentlyFailed { entries[other].lastFailure = nil }
        entries[currentIndex].failedHandshakes = 0
    }

    /// Handles that the bus of the session ends, so that it is not tried again before the others.
    mutating func busDrained() { retrySameBusUntil = 0 }

    /// Handles the end of a connection or attempt.
    ///
    /// - Parameters:
    ///   - ending: the reason; nil for a local bus.
    ///   - milliseconds: the present time.
    ///   - random: a uniformly distributed number.
    mutating func connectionFailed(_ ending: LinkEnding?, at milliseconds: Int, random: UInt64) -> Step {
        failures += 1
        entries[currentIndex].lastFailure = ending
        entries[currentIndex].failedHandshakes =
            ending == .handshakeFailed ? entries[currentIndex].failedHandshakes + 1 : 0
        guard entries.contains(where: { !$0.isPermanentlyFailed }) else {
            return .noEndpointLeft(entries[currentIndex].endpoint, ending ?? .unreachable)
        }
        guard currentEndpoint.isRemote else {
            return .connect(after: Self.localBackoff.delayNanoseconds(afterFailures: failures))
        }
        if sessionIndex == currentIndex, retrySameBusUntil == nil {
            retrySameBusUntil = milliseconds + Self.sameBusRetryMilliseconds
        }
        let rest =
            sessionIndex == currentIndex && !entries[currentIndex].isPermanentlyFailed
            ? (retrySameBusUntil ?? 0) - milliseconds : 0
        guard rest <= 0, entries.count > 1 else {
            let pause = Self.remoteBackoff.delayNanoseconds(afterFailures: failures, random: random)
            return .connect(after: entries.count > 1 ? min(pause, Int64(rest) * 1_000_000) : pause)
        }
        repeat { currentIndex = (currentIndex + 1) % entries.count } while entries[currentIndex].isPermanentlyFailed
        return .connect(
            after: Self.remoteBackoff.delayNanoseconds(afterFailures: 1 + failures / entries.count, random: random))
    }

    /// Handles that the session ended, so that another bus can have one.
    mutating func sessionEnded() { sessionIndex = nil }
}
