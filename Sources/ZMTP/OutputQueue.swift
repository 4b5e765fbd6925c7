internal import DequeModule
internal import EarshotLoop

/// Messages that the kernel has not taken yet.
///
/// Small ones lie one behind the other, so that one call writes many; a long body is written from where it is.
struct OutputQueue: ~Copyable {
    /// Bytes of a body that is not copied: a call of its own costs about as much as to copy so many, and who shares it
    /// has it in memory once.
    private static let longBytes = 8_192
    /// Bytes of small messages in one piece at most.
    private static let pieceBytes = 65_536
    /// Bytes of memory that stay for what comes next.
    private static let keptBytes = 16_384

    private struct Piece {
        var bytes: [UInt8] = []
        /// Messages that end in it.
        var messages = 0
        /// Replies among them, and bytes of replies in it.
        var replies = 0
        var replyBytes = 0
    }

    private var pieces: Deque<Piece> = []
    /// What is added to, behind all pieces.
    private var last = Piece()
    /// Bytes of the first piece, or of the last where there is no other, that the kernel took.
    private var sent = 0
    /// Messages that were not written to their end.
    private(set) var messages = 0
    /// Bytes that the kernel has not taken.
    private(set) var bytes = 0
    /// Replies that were not written to their end, and bytes of replies in pieces that were not.
    private(set) var replies = 0
    private(set) var replyBytes = 0
    /// `bytes` and `replyBytes` at the last call of ``takeGrowth()``.
    private var taken = (bytes: 0, replyBytes: 0)

    /// Changes of `bytes` and `replyBytes` since the last call.
    mutating func takeGrowth() -> (bytes: Int, replyBytes: Int) {
        let growth = (bytes - taken.bytes, replyBytes - taken.replyBytes)
        taken = (bytes, replyBytes)
        return growth
    }

    var isEmpty: Bool { pieces.isEmpty && last.bytes.isEmpty }

    /// Adds bytes that are no message.
    mutating func append(_ bytes: [UInt8]) {
        last.bytes += bytes
        self.bytes += bytes.count
    }

    /// - Parameter isReply: whether it is counted among the replies.
    mutating func append(_ message: Message, isReply: Bool = false) {
        if last.bytes.count >= Self.pieceBytes { closePiece() }
        let start = last.bytes.count
        if isReply { replies += 1 }
        if message.hasEnvelope { Frame.appendHeader(to: &last.bytes, count: 0, hasMore: true) }
        Frame.appendHeader(to: &last.bytes, count: message.head.count, hasMore: message.body != nil)
        last.bytes += message.head
        messages += 1
        if let body = message.body {
            Frame.appendHeader(to: &last.bytes, count: body.count, hasMore: false)
            if body.count >= Self.longBytes {
                count(from: start, isReply: isReply)
                closePiece()
                bytes += body.count
                replyBytes += isReply ? body.count : 0
                pieces.append(
                    Piece(
                        bytes: body, messages: 1, replies: isReply ? 1 : 0, replyBytes: isReply ? body.count : 0))
                return
            }
            last.bytes += body
        }
        last.messages += 1
        if isReply { last.replies += 1 }
        count(from: start, isReply: isReply)
    }

    /// Counts the bytes behind `start` in the last piece.
    private mutating func count(from start: Int, isReply: Bool) {
        let added = last.bytes.count - start
        bytes += added
        guard isReply else { return }
        replyBytes += added
        last.replyBytes += added
    }

    private mutating func closePiece() {
        pieces.append(last)
        last = Piece()
    }

    /// Writes until it is empty or the kernel takes no more.
    ///
    /// - Returns: `.bytes` when it is empty, else why not.
    mutating func write(to descriptor: Int32) -> UnixSocket.Transfer {
        while true {
            let isLast = pieces.isEmpty
            let bytes = isLast ? last.bytes : pieces[0].bytes
            guard sent < bytes.count else {
                sent = 0
                if isLast {
                    messages = 0
                    replies = 0
                    replyBytes = 0
                    (last.messages, last.replies, last.replyBytes) = (0, 0, 0)
                    last.bytes.removeAll(keepingCapacity: last.bytes.capacity <= Self.keptBytes)
                    return .bytes(0)
                }
                let piece = pieces.removeFirst()
                messages -= piece.messages
                replies -= piece.replies
                replyBytes -= piece.replyBytes
                continue
            }
            let outcome = unsafe bytes.withUnsafeBytes {
                unsafe UnixSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
            guard case .bytes(let count) = outcome else { return outcome }
            sent += count
            self.bytes -= count
        }
    }

    /// Gives up all.
    mutating func removeAll() {
        pieces = []
        last = Piece()
        sent = 0
        (messages, bytes, replies, replyBytes) = (0, 0, 0, 0)
    }
}
