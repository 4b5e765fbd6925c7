internal import DequeModule
internal import EarshotLoop

/// Output not yet accepted by the kernel.
///
/// Small messages are concatenated, so that one call writes many. A long body is written without a copy, and a part of
/// a file without reading it.
struct OutputQueue: ~Copyable {
    /// Minimum length of a body that is not copied, in bytes. A separate system call costs about as much as copying
    /// this many bytes, and recipients of one body share its memory.
    private static let minimumUncopiedBytes = 8_192
    /// Length in bytes after which a piece of small messages takes no further message.
    private static let maximumSmallPieceBytes = 65_536
    /// Capacity kept for later messages, in bytes.
    private static let keptCapacityBytes = 16_384

    private struct Piece {
        var bytes: [UInt8] = []
        /// Part of a file, sent in place of `bytes`.
        var file: FilePart?
        /// Messages that end in this piece.
        var messageCount = 0
        /// Replies that end in this piece, and bytes of replies in it.
        var replyCount = 0
        var replyBytes = 0

        /// Length in bytes.
        var count: Int { file?.count ?? bytes.count }

        /// Writes the bytes after the first `sent` ones.
        func write(to descriptor: Int32, after sent: Int) -> UnixSocket.TransferResult {
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
    private var sentBytesOfFirstPiece = 0
    /// Messages not completely written.
    private(set) var messageCount = 0
    /// Bytes not yet accepted by the kernel.
    private(set) var unsentBytes = 0
    /// Replies not completely written, and bytes of replies in pieces not completely written.
    private(set) var replyCount = 0
    private(set) var replyBytes = 0
    /// `unsentBytes` and `replyBytes` at the last call of ``takeByteChanges()``.
    private var reportedTotals = (bytes: 0, replyBytes: 0)

    /// Changes of `unsentBytes` and `replyBytes` since the last call.
    mutating func takeByteChanges() -> (bytes: Int, replyBytes: Int) {
        let growth = (unsentBytes - reportedTotals.bytes, replyBytes - reportedTotals.replyBytes)
        reportedTotals = (unsentBytes, replyBytes)
        return growth
    }

    var isEmpty: Bool { pieces.isEmpty && lastPiece.bytes.isEmpty }

    /// Appends bytes that are not a message.
    mutating func appendRawBytes(_ bytes: [UInt8]) {
        lastPiece.bytes += bytes
        self.unsentBytes += bytes.count
    }

    /// - Parameter isReply: Whether the message is counted as a reply.
    mutating func append(_ message: Message, isReply: Bool = false) {
        if lastPiece.bytes.count >= Self.maximumSmallPieceBytes { closePiece() }
        let start = lastPiece.bytes.count
        if isReply { replyCount += 1 }
        Frame.appendHeader(to: &lastPiece.bytes, count: message.head.count, hasMore: message.body != nil)
        lastPiece.bytes += message.head
        messageCount += 1
        if let body = message.body {
            Frame.appendHeader(to: &lastPiece.bytes, count: body.count, hasMore: false)
            if body.count >= Self.minimumUncopiedBytes {
                countAppendedBytes(from: start, isReply: isReply)
                closePiece()
                unsentBytes += body.count
                replyBytes += isReply ? body.count : 0
                let piece = Piece(
                    bytes: body, messageCount: 1, replyCount: isReply ? 1 : 0, replyBytes: isReply ? body.count : 0)
                pieces.append(piece)
                return
            }
            lastPiece.bytes += body
        }
        lastPiece.messageCount += 1
        if isReply { lastPiece.replyCount += 1 }
        countAppendedBytes(from: start, isReply: isReply)
    }

    /// Appends a message with a part of a file as its second frame.
    mutating func append(_ head: [UInt8], file: FilePart) {
        let start = lastPiece.bytes.count
        Frame.appendHeader(to: &lastPiece.bytes, count: head.count, hasMore: true)
        lastPiece.bytes += head
        Frame.appendHeader(to: &lastPiece.bytes, count: file.count, hasMore: false)
        countAppendedBytes(from: start, isReply: false)
        closePiece()
        pieces.append(Piece(file: file, messageCount: 1))
        unsentBytes += file.count
        messageCount += 1
    }

    /// Counts the bytes of the last piece from `start` on.
    private mutating func countAppendedBytes(from start: Int, isReply: Bool) {
        let added = lastPiece.bytes.count - start
        unsentBytes += added
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
    /// - Returns: `.bytesTransferred` if the queue is empty, otherwise the reason.
    mutating func write(to descriptor: Int32) -> UnixSocket.TransferResult {
        while true {
            let isLast = pieces.isEmpty
            guard sentBytesOfFirstPiece < (isLast ? lastPiece.bytes.count : pieces[0].count) else {
                sentBytesOfFirstPiece = 0
                if isLast {
                    messageCount = 0
                    replyCount = 0
                    replyBytes = 0
                    (lastPiece.messageCount, lastPiece.replyCount, lastPiece.replyBytes) = (0, 0, 0)
                    lastPiece.bytes.removeAll(keepingCapacity: lastPiece.bytes.capacity <= Self.keptCapacityBytes)
                    return .bytesTransferred(0)
                }
                let piece = pieces.removeFirst()
                messageCount -= piece.messageCount
                replyCount -= piece.replyCount
                replyBytes -= piece.replyBytes
                continue
            }
            let outcome =
                isLast
                ? lastPiece.write(to: descriptor, after: sentBytesOfFirstPiece)
                : pieces[0].write(to: descriptor, after: sentBytesOfFirstPiece)
            guard case .bytesTransferred(let count) = outcome else { return outcome }
            sentBytesOfFirstPiece += count
            self.unsentBytes -= count
        }
    }

    /// Drops all output.
    mutating func removeAll() {
        pieces = []
        lastPiece = Piece()
        sentBytesOfFirstPiece = 0
        (messageCount, unsentBytes, replyCount, replyBytes) = (0, 0, 0, 0)
    }
}
