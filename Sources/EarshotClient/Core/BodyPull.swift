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
        let part: Range<Int>
        /// Number of its connection.
        let connection: Int
    }

    /// Number of the file for its bytes.
    let file: Int
    /// Latest progress of the request; nil for a body that did not grow.
    private(set) var progress: Progress?
    /// Terminal of a complete body; nil while the body grows.
    private(set) var delivery: DeliveredTerminal?
    private let key: RequestKey
    private let generation: Generation?
    /// Bytes that the broker has.
    private var available: Int
    /// Offset of the first byte without a READ so far.
    private var nextOffset = 0
    /// Parts whose READ had no answer, or a short one.
    private var rereadParts: [Range<Int>] = []
    /// READs without an answer.
    private(set) var openReads: [OpenRead] = []

    /// Begins a growing body.
    init(file: Int, _ progress: Progress) {
        self.file = file
        self.progress = progress
        key = RequestKey(progress.handler, progress.request)
        generation = progress.generation
        available = progress.received
    }

    /// Begins a complete body.
    init(file: Int, _ delivery: DeliveredTerminal) {
        self.file = file
        self.delivery = delivery
        key = delivery.key
        generation = nil
        available = delivery.terminal.response?.length ?? 0
    }

    /// Number of bytes without a READ that has or awaits an answer.
    var unreadBytes: Int { rereadParts.reduce(available - nextOffset) { $0 + $1.count } }

    /// Number of bytes that have arrived without a gap.
    var received: Int {
        min(
            nextOffset, openReads.lazy.map(\.part.lowerBound).min() ?? nextOffset,
            rereadParts.lazy.map(\.lowerBound).min() ?? nextOffset)
    }

    /// Whether all bytes of a complete body have arrived.
    var isWhole: Bool { delivery != nil && received == available }

    /// Whether a READ can be sent.
    var hasUnread: Bool { !rereadParts.isEmpty || nextOffset < available }

    /// Progress with the bytes that have arrived.
    var report: Progress? {
        guard var report = progress else { return nil }
        report.received = received
        return report
    }

    /// Returns whether a report is about the same bytes.
    func isSame(_ generation: Generation?) -> Bool { generation != nil && generation == self.generation }

    /// Records that the body has grown.
    mutating func bodyGrew(_ progress: Progress) {
        self.progress = progress
        available = progress.received
    }

    /// Continues with the body of the terminal. The terminal has ended the READs of the growing body.
    ///
    /// - Returns: false if that is another body, or a shorter one.
    mutating func complete(_ delivery: DeliveredTerminal) -> Bool {
        guard let response = delivery.terminal.response, isSame(response.generation), nextOffset <= response.length
        else {
            return false
        }
        detach()
        self.delivery = delivery
        available = response.length
        return true
    }

    /// Records that the READs without an answer are void.
    ///
    /// - Parameter connection: connection of these READs; nil for all.
    mutating func detach(_ connection: Int? = nil) {
        rereadParts += openReads.lazy.filter { connection == nil || $0.connection == connection }.map(\.part)
        openReads.removeAll { connection == nil || $0.connection == connection }
    }

    /// Returns the next READ for a connection; nil if each available byte has one.
    mutating func takeRead(over connection: Int = 0) -> BodyRead? {
        let part: Range<Int>
        if let index = rereadParts.indices.min(by: { rereadParts[$0].lowerBound < rereadParts[$1].lowerBound }) {
            part = rereadParts.remove(at: index)
        } else if nextOffset < available {
            part = nextOffset..<min(nextOffset + WireLimits.dataBytes, available)
            nextOffset = part.upperBound
        } else {
            return nil
        }
        openReads.append(OpenRead(part: part, connection: connection))
        guard let delivery else {
            return BodyRead(
                .request(key.handler, key.request), offset: part.lowerBound, length: part.count,
                generation: generation)
        }
        return BodyRead(.terminal(delivery.id.sequence), offset: part.lowerBound, length: part.count)
    }

    /// Handles the answer to a READ. The rest of a short answer is read again.
    ///
    /// - Returns: the number of bytes to store; nil if no READ with this offset is open.
    mutating func take(_ count: Int, at offset: Int) -> Int? {
        guard let index = openReads.firstIndex(where: { $0.part.lowerBound == offset }) else { return nil }
        let part = openReads.remove(at: index).part
        let count = min(count, part.count)
        if count < part.count { rereadParts.append(part.dropFirst(count)) }
        return count
    }
}
