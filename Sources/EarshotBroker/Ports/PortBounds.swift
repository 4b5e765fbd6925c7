/// Bounds of unsent and incoming messages of a port's peers, and of the work for one peer in a pass.
struct PortBounds {
    /// Maximum number of unsent messages of one peer, of all kinds.
    var messages: Int
    /// Number of unsent messages of one peer, and of their bytes, at which terminals and progress are refused.
    var deliveries = Int.max
    var terminalBytes = Int.max
    var progressBytes = Int.max
    /// Unsent bytes of one peer at which parts of bodies are refused.
    var dataBytes = Int.max
    /// Number of unread replies, and of their bytes, at which the broker stops reading from a peer.
    var replies = Int.max
    var replyBytes = Int.max
    /// Unsent bytes of all peers, and of replies among them, above which `ownBytes` replaces the bounds of each peer.
    var bytesOfAll = Int.max
    var replyBytesOfAll = Int.max
    /// Unsent bytes that each peer is always allowed, and at which a full peer accepts messages again.
    var ownBytes = 65_536
    /// Maximum bytes of incomplete incoming frames of all peers.
    var frameBytes: Int
    /// Bytes of a message that count as one additional message in its sender's turn.
    var bytesPerMessage = Int.max
    /// Maximum time without a message after a connection was accepted, because each connection costs a descriptor.
    var silence = Duration.seconds(10)

    /// Clients: any program of the user.
    ///
    /// A full window of 256 bodies of 64 KiB fits into memory. Four of the longest frames can arrive at once. An honest
    /// client reads replies soon, so a mebibyte of them means that it stopped reading. With one more part of a body of
    /// 256 KiB the unsent parts take at most a mebibyte.
    static let clients = PortBounds(
        messages: 16_384, deliveries: 8_192, terminalBytes: 16 << 20, progressBytes: 256 << 10, dataBytes: 768 << 10,
        replies: 8_192,
        replyBytes: 1 << 20, bytesOfAll: 64 << 20, replyBytesOfAll: 16 << 20, frameBytes: 17 << 20,
        bytesPerMessage: 4_096)

    /// Workers: their slots bound their messages, and two of the longest bodies can arrive at once.
    ///
    /// Messages to a worker on another machine are of the kind `data`: four of the longest bodies of requests.
    static func workers(frameBytes: Int) -> PortBounds {
        PortBounds(messages: 8_192, dataBytes: 16 << 20, frameBytes: 4 * frameBytes)
    }
}
