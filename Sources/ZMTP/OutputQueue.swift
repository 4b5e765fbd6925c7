internal import DequeModule
internal import EarshotLoop

/// Output not yet accepted by the kernel.
///
/// Small messages are concatenated, so that one call writes many. A long body is written without a copy, and a part of a
/// file without reading it.
struct OutputQueue: ~Copyable {
    /// Minimum length of a body that is not copied, in bytes. A separate system call costs about as much as copying
    /// this many bytes, and recipients of one body share its memory.
    private static let longBytes = 8_192
    /// Length in bytes after which a piece of small messages takes no further message.
    private static let pieceBytes = 65_536
    /// Capacity kept for later messages, in bytes.
    private static let keptBytes = 16_384

    private struct Piece {
        var bytes: [UInt8] = []
        /// Part of a file, sent in place of `bytes`.
        var file: FilePart?
        /// Messages that end in this piece.
        var messages = 0
        /// Replies that end in this piece, and bytes of replies in it.
        var replies = 0
        var replyBytes = 0

        /// Length in bytes.
        var count: Int { file?.count ?? bytes.count }

        /// Writes the bytes after the first `sent` ones.
        func write(to descriptor: Int32, after sent: Int) -> UnixSocket.Transfer {
            if let file { return file.send(to: descriptor, after: sent) }
            return unsafe bytes.withUnsafeBytes {
                unsafe UnixSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
        }
    }

    private var pieces: Deque<Piece> = []
    /// Piece that messages are appended to, after all `pieces`.
    private var lastPiece = Piece()
    /// Bytes already sent of the first piece, or of `lastPiece` if there is no other.
    private var sent = 0
    /// Messages not completely written.
    private(set) var messages = 0
    /// Bytes not yet accepted by the kernel.
    private(set) var bytes = 0
    /// Replies not completely written, and bytes of replies in pieces not completely written.
    private(set) var replies = 0
    private(set) var replyBytes = 0
    /// `bytes` and `replyBytes` at the last call of ``takeGrowth()``.
    private var reportedTotals = (bytes: 0, replyBytes: 0)

    /// Changes of `bytes` and `replyBytes` since the last call.
    mutating func takeGrowth() -> (bytes: Int, replyBytes: Int) {
        let growth = (bytes - reportedTotals.bytes, replyBytes - reportedTotals.replyBytes)
        reportedTotals = (bytes, replyBytes)
        return growth
    }

    var isEmpty: Bool { pieces.isEmpty && lastPiece.bytes.isEmpty }

    /// Appends bytes that are not a message.
    mutating func append(_ bytes: [UInt8]) {
        lastPiece.bytes += bytes
        self.bytes += bytes.count
    }

    /// - Parameter isReply: Whether the message is counted as a reply.
    mutating func append(_ message: Message, isReply: Bool = false) {
        if lastPiece.bytes.count >= Self.pieceBytes { closePiece() }
        let start = lastPiece.bytes.count
        if isReply { replies += 1 }
        Frame.appendHeader(to: &lastPiece.bytes, count: message.head.count, hasMore: message.body != nil)
        lastPiece.bytes += message.head
        messages += 1
        if let body = message.body {
            Frame.appendHeader(to: &lastPiece.bytes, count: body.count, hasMore: false)
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
            lastPiece.bytes += body
        }
        lastPiece.messages += 1
        if isReply { lastPiece.replies += 1 }
        count(from: start, isReply: isReply)
    }

    /// Appends a message with a part of a file as its second frame.
    mutating func append(_ head: [UInt8], _ file: FilePart) {
        let start = lastPiece.bytes.count
        Frame.appendHeader(to: &lastPiece.bytes, count: head.count, hasMore: true)
        lastPiece.bytes += head
        Frame.appendHeader(to: &lastPiece.bytes, count: file.count, hasMore: false)
        count(from: start, isReply: false)
        closePiece()
        pieces.append(Piece(file: file, messages: 1))
        bytes += file.count
        messages += 1
    }

    /// Counts the bytes of the last piece from `start` on.
    private mutating func count(from start: Int, isReply: Bool) {
        let added = lastPiece.bytes.count - start
        bytes += added
        guard isReply else { return }
        replyBytes += added
        lastPiece.replyBytes += added
    }

    private mutating func closePiece() {
        pieces.append(lastPiece)
        lastPiece = Piece()
    }

    /// Writes until the queue is empty or the kernel accepts no more.
    ///
    /// - Returns: `.bytes` if the queue is empty, otherwise the reason.
    mutating func write(to descriptor: Int32) -> UnixSocket.Transfer {
        while true {
            let isLast = pieces.isEmpty
            guard sent < (isLast ? lastPiece.bytes.count : pieces[0].count) else {
                sent = 0
                if isLast {
                    messages = 0
                    replies = 0
                    replyBytes = 0
                    (lastPiece.messages, lastPiece.replies, lastPiece.replyBytes) = (0, 0, 0)
                    lastPiece.bytes.removeAll(keepingCapacity: lastPiece.bytes.capacity <= Self.keptBytes)
                    return .bytes(0)
                }
                let piece = pieces.removeFirst()
                messages -= piece.messages
                replies -= piece.replies
                replyBytes -= piece.replyBytes
                continue
            }
            let outcome =
                isLast ? lastPiece.write(to: descriptor, after: sent) : pieces[0].write(to: descriptor, after: sent)
            guard case .bytes(let count) = outcome else { return outcome }
            sent += count
            self.bytes -= count
        }
    }

    /// Drops all output.
    mutating func removeAll() {
        pieces = []
        lastPiece = Piece()
        sent = 0
        (messages, bytes, replies, replyBytes) = (0, 0, 0, 0)
    }
}
