internal import EarshotLoop

/// Bytes that the gateway and libzmq hold for remote clients, and the bounds of one client and of all.
///
/// A client that reaches its bound is not read, or gets nothing more, until its bytes are passed on. Others continue.
struct RelayMemory {
    /// Bytes that each client may always have in each direction.
    static let ownBytes = 65_536
    /// Maximum bytes of one client's messages that the broker does not read.
    static let unreadBytes = 512 << 10
    /// Maximum bytes of messages that one client does not read; one more message may be added.
    static let unsentBytes = 1 << 20
    /// Bytes of messages from all clients above which only one client with more than ``ownBytes`` is read.
    static let undeliveredOfAll = 64 << 20
    /// Bytes of messages to all clients above which ``ownBytes`` is the bound of each.
    static let unsentOfAll = 128 << 20

    /// Bytes from clients that are part of no message passed to the broker, and bytes for clients in libzmq.
    private(set) var undelivered = 0
    private(set) var unsent = 0
    /// The client that may send a long message while memory is short, and since when.
    private var holder: (client: UInt64, since: LoopTime)?

    /// Records a change of a client's bytes.
    mutating func changed(undelivered change: Int) { undelivered += change }

    mutating func changed(unsent change: Int) { unsent += change }

    /// Whether more bytes of a client may be read.
    ///
    /// - Parameter isBlocked: whether the broker does not read the client's messages.
    mutating func mayRead(_ client: UInt64, undelivered own: Int, isBlocked: Bool, now: LoopTime) -> Bool {
        if holder?.client == client, own <= Self.ownBytes { holder = nil }
        if isBlocked { return own < Self.unreadBytes && (undelivered < Self.undeliveredOfAll || own < Self.ownBytes) }
        if own < Self.ownBytes || undelivered < Self.undeliveredOfAll { return true }
        if holder == nil { holder = (client, now) }
        return holder?.client == client
    }

    /// Time for a long message while others wait for memory.
    static let messageTime = Duration.seconds(10)

    /// The client whose long message takes too long while others wait; nil for none.
    func overdueClient(now: LoopTime) -> UInt64? {
        holder.flatMap { now.since($0.since) >= Self.messageTime ? $0.client : nil }
    }

    /// Forgets a client that has gone.
    mutating func clientLeft(_ client: UInt64) { if holder?.client == client { holder = nil } }

    /// Whether another message may be sent to a client.
    func maySend(unsent own: Int) -> Bool {
        own < (unsent < Self.unsentOfAll ? Self.unsentBytes : Self.ownBytes)
    }
}
