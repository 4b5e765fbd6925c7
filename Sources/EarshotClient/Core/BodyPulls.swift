internal import DequeModule
internal import EarshotWire

/// Bodies of a session that are read with READ, and the order of the READs.
///
/// A session has at most ``maximumReads`` READs without an answer. The bodies take turns, one READ each. Further
/// connections have numbers from 1 and READs of complete bodies only.
struct BodyPulls {
    /// Step after a message of the broker.
    enum Step: Equatable {
        /// Ignore the message.
        case ignore
        /// Store the first `count` bytes of the message in a file.
        case store(file: Int, offset: Int, count: Int)
        /// Report progress of a body whose bytes are in a file.
        case reportProgress(Progress, file: Int)
        /// Report that the reading of a terminal's body begins.
        case beginBody(DeliveredTerminal, file: Int)
        /// Report the number of bytes of a terminal's body that have arrived without a gap.
        case reportArrival(DeliveredTerminal, bytes: Int, file: Int)
        /// Deliver the terminal with its body in a file.
        case deliverWithBody(DeliveredTerminal, file: Int)
        /// Deliver the terminal without its body, which cannot be read any more.
        case deliverWithoutBody(DeliveredTerminal)
    }

    /// Maximum number of complete bodies that are read at a time, because each has an open file.
    private static let maximumCompleteBodies = 8
    /// Maximum number of READs without an answer. Four suffice without a round trip: their bytes are at most a
    /// mebibyte.
    var maximumReads = 4
    /// Whether bodies of terminals are reported while they arrive.
    var reportsBodyArrival = false
    /// Maximum number of READs without an answer of each further connection; 0 for one that is not open.
    private var furtherConnectionReads: [Int] = []
    /// Bytes without a READ for which further connections are useful.
    private static let bytesForFurtherConnections = 4 << 20
    /// Maximum number of READs of growing bodies without an answer. Those of a broken attempt are answered only when
    /// the next one runs, so they must not stop the reading of other bodies.
    private var maximumGrowingBodyReads: Int { maximumReads / 2 }

    private var pullsByFile: [Int: BodyPull] = [:]
    /// Growing bodies, by request.
    private var growingBodies: [RequestKey: Int] = [:]
    /// Complete bodies, by sequence number.
    private var completeBodies: [UInt64: Int] = [:]
    /// Growing bodies with unread bytes, in the order of their turns, each once.
    private var growingBodyQueue: Deque<Int> = []
    /// Growing bodies of the READs without an answer.
    private var unansweredGrowingReads: [Int] = []
    /// Complete bodies that are being read, in the order of their turns.
    private var readingBodies: Deque<Int> = []
    /// Complete bodies that are not being read yet.
    private var waitingBodies: Deque<Int> = []
    /// READs without an answer whose bodies are lost, by sequence number. The broker counts them until it has answered
    /// them or received the ACK.
    private var voidReads: [UInt64: [BodyPull.OpenRead]] = [:]
    private var lastFileNumber = 0
    /// Files that are not needed any more.
    private var discardedFiles: [Int] = []

    /// Whether a terminal waits for the bytes of its body.
    var delaysTerminals: Bool { !completeBodies.isEmpty }

    /// Whether further connections would shorten the reading of complete bodies.
    var wantsMoreConnections: Bool {
        guard !completeBodies.isEmpty else { return false }
        return completeBodies.values.reduce(0) { $0 + (pullsByFile[$1]?.unreadBytes ?? 0) }
            >= Self.bytesForFurtherConnections
    }

    /// Whether there is no body.
    var isEmpty: Bool { pullsByFile.isEmpty }

    /// Returns the files that are not needed any more, once.
    mutating func takeDiscardedFiles() -> [Int] {
        defer { discardedFiles = [] }
        return discardedFiles
    }

    // MARK: Events

    /// Handles a report of a growing body.
    mutating func bodyGrew(_ progress: Progress) -> Step {
        let key = RequestKey(progress.handler, progress.request)
        if let file = growingBodies[key], pullsByFile[file]?.hasGeneration(progress.generation) != true {
            discardGrowingBody(of: key)
        }
        let file = growingBodies[key] ?? nextFileNumber()
        pullsByFile[file, default: BodyPull(file: file, progress)].bodyGrew(progress)
        growingBodies[key] = file
        enqueueIfUnread(file)
        return progressStep(of: file)
    }

    /// Handles a terminal with a body to read.
    mutating func terminalReceived(_ delivery: DeliveredTerminal) -> [Step] {
        let file: Int
        if let grown = growingBodies.removeValue(forKey: delivery.key) {
            file = grown
            forgetReads(ofGrowing: file)
            if pullsByFile[file]?.complete(with: delivery) != true {
                discardFile(file)
                return terminalReceived(delivery)
            }
        } else {
            file = nextFileNumber()
            pullsByFile[file] = BodyPull(file: file, delivery)
        }
        completeBodies[delivery.id.sequence] = file
        waitingBodies.append(file)
        return (reportsBodyArrival ? [.beginBody(delivery, file: file)] : []) + deliverIfFullyReceived(file)
    }

    /// Handles a terminal without a body to read.
    mutating func bodylessTerminalReceived(_ key: RequestKey) {
        if !growingBodies.isEmpty { discardGrowingBody(of: key) }
    }

    /// Handles DATA with `count` bytes.
    mutating func dataReceived(_ data: BodyData, count: Int) -> [Step] {
        switch data.body {
        case .terminal(let sequence):
            guard let file = completeBodies[sequence] else {
                if let index = voidReads[sequence]?.firstIndex(where: { $0.byteRange.lowerBound == data.offset }) {
                    voidReads[sequence]?.remove(at: index)
                }
                return []
            }
            guard let stored = pullsByFile[file]?.acceptBytes(count, at: data.offset) else { return [] }
            // The broker has fewer bytes than it announced.
            if stored == 0 { return [loseBody(ofTerminal: sequence)].compactMap(\.self) }
            return [.store(file: file, offset: data.offset, count: stored)] + arrivalSteps(of: file)
                + deliverIfFullyReceived(file)
        case .request(let handler, let request):
            let key = RequestKey(handler, request)
            guard let file = growingBodies[key] else { return [] }
            guard count > 0, pullsByFile[file]?.hasGeneration(data.generation) == true else {
                // Another body. Its next progress begins it.
                discardGrowingBody(of: key)
                return []
            }
            guard let stored = pullsByFile[file]?.acceptBytes(count, at: data.offset) else { return [] }
            if let index = unansweredGrowingReads.firstIndex(of: file) { unansweredGrowingReads.remove(at: index) }
            enqueueIfUnread(file)
            return [.store(file: file, offset: data.offset, count: stored), progressStep(of: file)]
        }
    }

    /// Handles the refusal of a READ on a connection.
    mutating func readRefused(_ data: BodyData, over connection: Int = 0) -> Step {
        switch data.body {
        case .terminal(let sequence):
            let step = loseBody(ofTerminal: sequence) ?? .ignore
            // Each further READ of the body is answered by its own DATA.
            if let index = voidReads[sequence]?.firstIndex(where: {
                $0.connection == connection && $0.byteRange.lowerBound == data.offset
            }) {
                voidReads[sequence]?.remove(at: index)
            }
            return step
        case .request(let handler, let request):
            discardGrowingBody(of: RequestKey(handler, request))
            return .ignore
        }
    }

    /// Handles the ACK of terminals, which makes the READs of their bodies void.
    mutating func terminalsAcknowledged(_ sequence: UInt64) {
        if !voidReads.isEmpty { voidReads = voidReads.filter { $0.key > sequence } }
    }

    /// Stops reading bodies of cancelled or removed requests.
    ///
    /// - Returns: sequence numbers of their terminals, which are finished.
    mutating func discardBodies(where isRemoved: (RequestKey) -> Bool) -> [UInt64] {
        if pullsByFile.isEmpty { return [] }
        for key in growingBodies.keys.filter(isRemoved) { discardGrowingBody(of: key) }
        let sequences = completeBodies.keys.filter { sequence in
            completeBodies[sequence].flatMap { pullsByFile[$0]?.delivery }.map { isRemoved($0.key) } ?? false
        }
        for sequence in sequences { if let file = completeBodies.removeValue(forKey: sequence) { discardFile(file) } }
        return sequences
    }

    /// Handles the loss of the session's connection, with which the others are closed: the READs without an answer are
    /// void.
    mutating func voidAllReads() {
        furtherConnectionReads = []
        for file in pullsByFile.keys { pullsByFile[file]?.voidReads() }
        for file in unansweredGrowingReads { enqueueIfUnread(file) }
        unansweredGrowingReads = []
        voidReads = [:]
    }

    /// Handles the end of the session, with which all bodies are lost.
    mutating func endSession() -> [Step] {
        for key in growingBodies.keys.map({ $0 }) { discardGrowingBody(of: key) }
        let steps = completeBodies.keys.sorted().compactMap { loseBody(ofTerminal: $0) }
        (voidReads, furtherConnectionReads) = ([:], [])
        return steps
    }

    // MARK: Further connections

    /// Handles the WELCOME of a further connection.
    ///
    /// - Parameter maximumReads: number of its READs that may have no answer.
    mutating func openConnection(_ connection: Int, maximumReads: Int) {
        furtherConnectionReads += Array(repeating: 0, count: max(0, connection - furtherConnectionReads.count))
        furtherConnectionReads[connection - 1] = maximumReads
    }

    /// Handles the end of a further connection. Others carry its READs.
    mutating func closeConnection(_ connection: Int) {
        guard furtherConnectionReads.indices.contains(connection - 1) else { return }
        furtherConnectionReads[connection - 1] = 0
        for file in readingBodies { pullsByFile[file]?.voidReads(connection) }
        voidReads = voidReads.mapValues { $0.filter { $0.connection != connection } }
    }

    /// Closes all further connections.
    mutating func closeFurtherConnections() {
        for number in furtherConnectionReads.indices { closeConnection(number + 1) }
    }

    // MARK: READs

    /// Returns the READs to send now, with the numbers of their connections.
    mutating func nextReads() -> [(read: BodyRead, connection: Int)] {
        var reads: [(read: BodyRead, connection: Int)] = []
        if pullsByFile.isEmpty { return reads }
        while readingBodies.count < Self.maximumCompleteBodies, let file = waitingBodies.popFirst() {
            if pullsByFile[file] != nil { readingBodies.append(file) }
        }
        // Number of READs that each connection may still send.
        var room = [maximumReads - unansweredGrowingReads.count] + furtherConnectionReads
        for file in readingBodies { for read in pullsByFile[file]?.openReads ?? [] { room[read.connection] -= 1 } }
        for reads in voidReads.values { for read in reads { room[read.connection] -= 1 } }
        var idle = 0
        while let connection = room.indices.max(by: { room[$0] < room[$1] }), room[connection] > 0 {
            if room[0] > 0, unansweredGrowingReads.count < maximumGrowingBodyReads,
                let file = growingBodyQueue.popFirst()
            {
                guard let read = pullsByFile[file]?.takeRead() else { continue }
                unansweredGrowingReads.append(file)
                enqueueIfUnread(file)
                reads.append((read, 0))
                room[0] -= 1
            } else if idle < readingBodies.count, let file = readingBodies.popFirst() {
                readingBodies.append(file)
                guard let read = pullsByFile[file]?.takeRead(over: connection) else {
                    idle += 1
                    continue
                }
                idle = 0
                reads.append((read, connection))
                room[connection] -= 1
            } else {
                break
            }
        }
        return reads
    }

    // MARK: Steps

    private mutating func nextFileNumber() -> Int {
        lastFileNumber += 1
        return lastFileNumber
    }

    private func progressStep(of file: Int) -> Step {
        pullsByFile[file]?.receivedProgress.map { .reportProgress($0, file: file) } ?? .ignore
    }

    private func arrivalSteps(of file: Int) -> [Step] {
        guard reportsBodyArrival, let pull = pullsByFile[file], let delivery = pull.delivery else { return [] }
        return [.reportArrival(delivery, bytes: pull.receivedBytes, file: file)]
    }

    private mutating func deliverIfFullyReceived(_ file: Int) -> [Step] {
        guard let pull = pullsByFile[file], pull.isFullyReceived, let delivery = pull.delivery else { return [] }
        completeBodies[delivery.id.sequence] = nil
        removePull(ofFile: file)
        return [.deliverWithBody(delivery, file: file)]
    }

    private mutating func loseBody(ofTerminal sequence: UInt64) -> Step? {
        guard let file = completeBodies.removeValue(forKey: sequence), let pull = pullsByFile[file],
            let delivery = pull.delivery
        else { return nil }
        if !pull.openReads.isEmpty { voidReads[sequence] = pull.openReads }
        discardFile(file)
        return .deliverWithoutBody(delivery)
    }

    private mutating func discardGrowingBody(of key: RequestKey) {
        guard let file = growingBodies.removeValue(forKey: key) else { return }
        forgetReads(ofGrowing: file)
        discardFile(file)
    }

    private mutating func discardFile(_ file: Int) {
        removePull(ofFile: file)
        discardedFiles.append(file)
    }

    private mutating func removePull(ofFile file: Int) {
        pullsByFile[file] = nil
        readingBodies.removeAll { $0 == file }
        waitingBodies.removeAll { $0 == file }
    }

    private mutating func forgetReads(ofGrowing file: Int) {
        unansweredGrowingReads.removeAll { $0 == file }
        growingBodyQueue.removeAll { $0 == file }
    }

    private mutating func enqueueIfUnread(_ file: Int) {
        if pullsByFile[file]?.hasUnreadBytes == true, !growingBodyQueue.contains(file) { growingBodyQueue.append(file) }
    }
}
