/// Bounds of the messages on their way to the peers of a port, and of the work that a peer makes in one pass.
struct PortBounds {
    /// Messages that may wait for one peer, whatever they are.
    var messages: Int
    /// Messages that may wait for a peer before terminals and progress are held back, and bytes of both.
    var deliveries = Int.max
    var terminalBytes = Int.max
    var progressBytes = Int.max
    /// Unread replies, and their bytes, at which the broker stops reading from a peer.
    var replies = Int.max
    var replyBytes = Int.max
    /// Bytes that may wait for all peers, and bytes of replies among them. Beyond them `ownBytes` hold for each peer.
    var bytesOfAll = Int.max
    var replyBytesOfAll = Int.max
    /// Bytes that may wait for a peer whatever waits for others, and at which a full peer has room again.
    var ownBytes = 65_536
    /// Bytes that incoming frames of all peers may take.
    var frameBytes: Int
    /// Bytes of a message that count as one more message in its sender's turn.
    var bytesPerMessage = Int.max

    /// Clients: any program of the user.
    ///
    /// A full window of 256 bodies of 64 KiB waits in memory. Four of the longest frames arrive at once. A reply of an
    /// honest client is read soon, so a mebibyte of them is a reader that stopped.
    static let clients = PortBounds(
        messages: 16_384, deliveries: 8_192, terminalBytes: 16 << 20, progressBytes: 256 << 10, replies: 8_192,
        replyBytes: 1 << 20, bytesOfAll: 64 << 20, replyBytesOfAll: 16 << 20, frameBytes: 17 << 20,
        bytesPerMessage: 4_096)

    /// Workers: their messages are bounded by the slots that they have, and two of the longest bodies arrive at once.
    static func workers(frameBytes: Int) -> PortBounds { PortBounds(messages: 8_192, frameBytes: 4 * frameBytes) }
}
