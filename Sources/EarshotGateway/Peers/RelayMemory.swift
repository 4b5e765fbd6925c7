internal import EarshotLoop

/// Bytes that the gateway and libzmq hold for remote clients, and the bounds of one client and of all.
///
/// A client that reaches its bound is not read, or gets nothing more, until its bytes are passed on. Others continue.
struct RelayMemory {
    /// Bytes that each client may always have in each direction.
    static let guaranteedBytesPerClient = 65_536
    /// Maximum bytes of one client's messages that the broker does not read.
    static let maximumUnreadBytes = 512 << 10
    /// Maximum bytes of messages that one client does not read; one more message may be added.
    static let maximumUnsentBytes = 1 << 20
    /// Bytes of messages from all clients above which only one client with more than ``guaranteedBytesPerClient`` is
    /// read.
    static let undeliveredBytesThreshold = 64 << 20
    /// Bytes of messages to all clients above which ``guaranteedBytesPerClient`` is the bound of each.
    static let unsentBytesThreshold = 128 << 20

    /// Bytes from clients that are part of no message passed to the broker, and bytes for clients in libzmq.
    private(set) var totalUndeliveredBytes = 0
    private(set) var totalUnsentBytes = 0
    /// The client that may send a long message while memory is short, and since when.
    private var longMessageClient: (client: UInt64, since: LoopTime)?

    /// Records a change of a client's bytes.
    mutating func adjustUndelivered(by change: Int) { totalUndeliveredBytes += change }

    mutating func adjustUnsent(by change: Int) { totalUnsentBytes += change }

    /// Whether more bytes of a client may be read.
    ///
    /// - Parameter isBlocked: whether the broker does not read the client's messages.
    mutating func mayRead(_ client: UInt64, undelivered own: Int, isBlocked: Bool, now: LoopTime) -> Bool {
        if longMessageClient?.client == client, own <= Self.guaranteedBytesPerClient { longMessageClient = nil }
        if isBlocked {
            return own < Self.maximumUnreadBytes
                && (totalUndeliveredBytes < Self.undeliveredBytesThreshold || own < Self.guaranteedBytesPerClient)
        }
        if own < Self.guaranteedBytesPerClient || totalUndeliveredBytes < Self.undeliveredBytesThreshold { return true }
        if longMessageClient == nil { longMessageClient = (client, now) }
        return longMessageClient?.client == client
    }

    /// Time for a long message while others wait for memory.
    static let longMessageTimeout = Duration.seconds(10)

    /// The client whose long message takes too long while others wait; nil for none.
    func overdueClient(now: LoopTime) -> UInt64? {
        longMessageClient.flatMap { now.since($0.since) >= Self.longMessageTimeout ? $0.client : nil }
    }

    /// Forgets a client that has gone.
    mutating func clientLeft(_ client: UInt64) { if longMessageClient?.client == client { longMessageClient = nil } }

    /// Whether another message may be sent to a client.
    func maySend(unsent own: Int) -> Bool {
        own < (totalUnsentBytes < Self.unsentBytesThreshold ? Self.maximumUnsentBytes : Self.guaranteedBytesPerClient)
    }
}
