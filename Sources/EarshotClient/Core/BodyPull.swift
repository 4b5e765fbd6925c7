internal import EarshotWire

/// Body that is read with READ: that of an open request while it grows, then that of its terminal.
///
/// ```
/// growing → complete → (delivered, or lost)
///    └────────────────→ (discarded)
/// ```
struct BodyPull {
    /// A READ without an answer.
    struct OpenRead {
        let byteRange: Range<Int>
        /// Number of its connection.
        let connection: Int
    }

    /// Number of the file for its bytes.
    let fileNumber: Int
    /// Latest progress of the request; nil for a body that did not grow.
    private(set) var progress: Progress?
    /// Terminal of a complete body; nil while the body grows.
    private(set) var delivery: DeliveredTerminal?
    private let key: RequestKey
    private let generation: Generation?
    /// Bytes that the broker has.
    private var availableBytes: Int
    /// Offset of the first byte without a READ so far.
    private var nextOffset = 0
    /// Parts whose READ had no answer, or a short one.
    private var rereadRanges: [Range<Int>] = []
    /// READs without an answer.
    private(set) var openReads: [OpenRead] = []

    /// Begins a growing body.
    init(file: Int, _ progress: Progress) {
        fileNumber = file
        self.progress = progress
        key = RequestKey(progress.handler, progress.request)
        generation = progress.generation
        availableBytes = progress.receivedBytes
    }

    /// Begins a complete body.
    init(file: Int, _ delivery: DeliveredTerminal) {
        fileNumber = file
        self.delivery = delivery
        key = delivery.key
        generation = nil
        availableBytes = delivery.terminal.response?.bodyByteCount ?? 0
    }

    /// Number of bytes without a READ that has or awaits an answer.
    var unreadBytes: Int { rereadRanges.reduce(availableBytes - nextOffset) { $0 + $1.count } }

    /// Number of bytes that have arrived without a gap.
    var receivedBytes: Int {
        min(
            nextOffset, openReads.lazy.map(\.byteRange.lowerBound).min() ?? nextOffset,
            rereadRanges.lazy.map(\.lowerBound).min() ?? nextOffset)
    }

    /// Whether all bytes of a complete body have arrived.
    var isFullyReceived: Bool { delivery != nil && receivedBytes == availableBytes }

    /// Whether a READ can be sent.
    var hasUnreadBytes: Bool { !rereadRanges.isEmpty || nextOffset < availableBytes }

    /// Progress with the bytes that have arrived.
    var receivedProgress: Progress? {
        guard var report = progress else { return nil }
        report.receivedBytes = receivedBytes
        return report
    }

    /// Returns whether a report is about the same bytes.
    func hasGeneration(_ generation: Generation?) -> Bool { generation != nil && generation == self.generation }

    /// Records that the body has grown.
    mutating func bodyGrew(_ progress: Progress) {
        self.progress = progress
        availableBytes = progress.receivedBytes
    }

    /// Continues with the body of the terminal. The terminal has ended the READs of the growing body.
    ///
    /// - Returns: false if that is another body, or a shorter one.
    mutating func complete(with delivery: DeliveredTerminal) -> Bool {
        guard let response = delivery.terminal.response, hasGeneration(response.generation),
            nextOffset <= response.bodyByteCount
        else { return false }
        voidReads()
        self.delivery = delivery
        availableBytes = response.bodyByteCount
        return true
    }

    /// Records that the READs without an answer are void.
    ///
    /// - Parameter connection: connection of these READs; nil for all.
    mutating func voidReads(_ connection: Int? = nil) {
        rereadRanges += openReads.lazy.filter { connection == nil || $0.connection == connection }.map(\.byteRange)
        openReads.removeAll { connection == nil || $0.connection == connection }
    }

    /// Returns the next READ for a connection; nil if each available byte has one.
    mutating func takeRead(over connection: Int = 0) -> BodyRead? {
        let part: Range<Int>
        if let index = rereadRanges.indices.min(by: { rereadRanges[$0].lowerBound < rereadRanges[$1].lowerBound }) {
            part = rereadRanges.remove(at: index)
        } else if nextOffset < availableBytes {
            part = nextOffset..<min(nextOffset + WireLimits.dataBytes, availableBytes)
            nextOffset = part.upperBound
        } else {
            return nil
        }
        openReads.append(OpenRead(byteRange: part, connection: connection))
        guard let delivery else {
            return BodyRead(
                .request(key.handler, key.request), offset: part.lowerBound, maximumBytes: part.count,
                generation: generation)
        }
        return BodyRead(.terminal(delivery.id.sequence), offset: part.lowerBound, maximumBytes: part.count)
    }

    /// Handles the answer to a READ. The rest of a short answer is read again.
    ///
    /// - Returns: the number of bytes to store; nil if no READ with this offset is open.
    mutating func acceptBytes(_ count: Int, at offset: Int) -> Int? {
        guard let index = openReads.firstIndex(where: { $0.byteRange.lowerBound == offset }) else { return nil }
        let part = openReads.remove(at: index).byteRange
        let count = min(count, part.count)
        if count < part.count { rereadRanges.append(part.dropFirst(count)) }
        return count
    }
}
