internal import DequeModule
internal import EarshotWire

/// Bodies of a session that are read with READ, and the order of the READs.
///
/// A session has at most ``mostReads`` READs without an answer. The bodies take turns, one READ each. Further connections
/// have numbers from 1 and READs of complete bodies only.
struct BodyPulls {
    /// Step after a message of the broker.
    enum Step: Equatable {
        /// Ignore the message.
        case none
        /// Store the first `count` bytes of the message in a file.
        case store(file: Int, offset: Int, count: Int)
        /// Report progress of a body whose bytes are in a file.
        case report(Progress, file: Int)
        /// Report that the reading of a terminal's body begins.
        case begin(DeliveredTerminal, file: Int)
        /// Report the number of bytes of a terminal's body that have arrived without a gap.
        case arrived(DeliveredTerminal, bytes: Int, file: Int)
        /// Deliver the terminal with its body in a file.
        case deliver(DeliveredTerminal, file: Int)
        /// Deliver the terminal without its body, which cannot be read any more.
        case lose(DeliveredTerminal)
    }

    /// Maximum number of complete bodies that are read at a time, because each has an open file.
    private static let mostComplete = 8
    /// Maximum number of READs without an answer. Four suffice without a round trip: their bytes are at most a mebibyte.
    var mostReads = 4
    /// Whether bodies of terminals are reported while they arrive.
    var reportsArrival = false
    /// Maximum number of READs without an answer of each further connection; 0 for one that is not open.
    private var readsOfOthers: [Int] = []
    /// Bytes without a READ for which further connections are useful.
    private static let bytesForFurtherConnections = 4 << 20
    /// Maximum number of READs of growing bodies without an answer. Those of a broken attempt are answered only when
    /// the next one runs, so they must not stop the reading of other bodies.
    private var mostGrowingReads: Int { mostReads / 2 }

    private var pulls: [Int: BodyPull] = [:]
    /// Growing bodies, by request.
    private var growing: [RequestKey: Int] = [:]
    /// Complete bodies, by sequence number.
    private var complete: [UInt64: Int] = [:]
    /// Growing bodies with unread bytes, in the order of their turns, each once.
    private var growingTurns: Deque<Int> = []
    /// Growing bodies of the READs without an answer.
    private var growingReads: [Int] = []
    /// Complete bodies that are being read, in the order of their turns.
    private var turns: Deque<Int> = []
    /// Complete bodies that are not being read yet.
    private var waiting: Deque<Int> = []
    /// READs without an answer whose bodies are lost, by sequence number. The broker counts them until it has answered
    /// them or received the ACK.
    private var void: [UInt64: [BodyPull.OpenRead]] = [:]
    private var lastFile = 0
    /// Files that are not needed any more.
    private var discarded: [Int] = []

    /// Whether a terminal waits for the bytes of its body.
    var delaysTerminals: Bool { !complete.isEmpty }

    /// Whether further connections would shorten the reading of complete bodies.
    var wantsConnections: Bool {
        guard !complete.isEmpty else { return false }
        return complete.values.reduce(0) { $0 + (pulls[$1]?.unreadBytes ?? 0) } >= Self.bytesForFurtherConnections
    }

    /// Whether there is no body.
    var isEmpty: Bool { pulls.isEmpty }

    /// Returns the files that are not needed any more, once.
    mutating func takeDiscarded() -> [Int] {
        defer { discarded = [] }
        return discarded
    }

    // MARK: Events

    /// Handles a report of a growing body.
    mutating func bodyGrew(_ progress: Progress) -> Step {
        let key = RequestKey(progress.handler, progress.request)
        if let file = growing[key], pulls[file]?.isSame(progress.generation) != true { discard(growing: key) }
        let file = growing[key] ?? nextFile()
        pulls[file, default: BodyPull(file: file, progress)].bodyGrew(progress)
        growing[key] = file
        noteUnread(file)
        return report(file)
    }

    /// Handles a terminal with a body to read.
    mutating func ended(_ delivery: DeliveredTerminal) -> [Step] {
        let file: Int
        if let grown = growing.removeValue(forKey: delivery.key) {
            file = grown
            forgetReads(ofGrowing: file)
            if pulls[file]?.complete(delivery) != true {
                discard(file)
                return ended(delivery)
            }
        } else {
            file = nextFile()
            pulls[file] = BodyPull(file: file, delivery)
        }
        complete[delivery.id.sequence] = file
        waiting.append(file)
        return (reportsArrival ? [.begin(delivery, file: file)] : []) + deliverIfWhole(file)
    }

    /// Handles a terminal without a body to read.
    mutating func ended(_ key: RequestKey) { if !growing.isEmpty { discard(growing: key) } }

    /// Handles DATA with `count` bytes.
    mutating func received(_ data: BodyData, count: Int) -> [Step] {
        switch data.body {
        case .terminal(let sequence):
            guard let file = complete[sequence] else {
                if let index = void[sequence]?.firstIndex(where: { $0.part.lowerBound == data.offset }) {
                    void[sequence]?.remove(at: index)
                }
                return []
            }
            guard let stored = pulls[file]?.take(count, at: data.offset) else { return [] }
            // The broker has fewer bytes than it announced.
            if stored == 0 { return [lose(sequence)].compactMap(\.self) }
            return [.store(file: file, offset: data.offset, count: stored)] + arrival(file) + deliverIfWhole(file)
        case .request(let handler, let request):
            let key = RequestKey(handler, request)
            guard let file = growing[key] else { return [] }
            guard count > 0, pulls[file]?.isSame(data.generation) == true else {
                // Another body. Its next progress begins it.
                discard(growing: key)
                return []
            }
            guard let stored = pulls[file]?.take(count, at: data.offset) else { return [] }
            if let index = growingReads.firstIndex(of: file) { growingReads.remove(at: index) }
            noteUnread(file)
            return [.store(file: file, offset: data.offset, count: stored), report(file)]
        }
    }

    /// Handles the refusal of a READ on a connection.
    mutating func readRefused(_ data: BodyData, over connection: Int = 0) -> Step {
        switch data.body {
        case .terminal(let sequence):
            let step = lose(sequence) ?? .none
            // Each further READ of the body is answered by its own DATA.
            if let index = void[sequence]?.firstIndex(where: {
                $0.connection == connection && $0.part.lowerBound == data.offset
            }) {
                void[sequence]?.remove(at: index)
            }
            return step
        case .request(let handler, let request):
            discard(growing: RequestKey(handler, request))
            return .none
        }
    }

    /// Handles the ACK of terminals, which makes the READs of their bodies void.
    mutating func acknowledged(_ sequence: UInt64) {
        if !void.isEmpty { void = void.filter { $0.key > sequence } }
    }

    /// Stops reading bodies of cancelled or removed requests.
    ///
    /// - Returns: sequence numbers of their terminals, which are finished.
    mutating func drop(where isRemoved: (RequestKey) -> Bool) -> [UInt64] {
        if pulls.isEmpty { return [] }
        for key in growing.keys.filter(isRemoved) { discard(growing: key) }
        let sequences = complete.keys.filter { sequence in
            complete[sequence].flatMap { pulls[$0]?.delivery }.map { isRemoved($0.key) } ?? false
        }
        for sequence in sequences { if let file = complete.removeValue(forKey: sequence) { discard(file) } }
        return sequences
    }

    /// Handles the loss of the session's connection, with which the others are closed: the READs without an answer are
    /// void.
    mutating func detach() {
        readsOfOthers = []
        for file in pulls.keys { pulls[file]?.detach() }
        for file in growingReads { noteUnread(file) }
        growingReads = []
        void = [:]
    }

    /// Handles the end of the session, with which all bodies are lost.
    mutating func endSession() -> [Step] {
        for key in growing.keys.map({ $0 }) { discard(growing: key) }
        let steps = complete.keys.sorted().compactMap { lose($0) }
        (void, readsOfOthers) = ([:], [])
        return steps
    }

    // MARK: Further connections

    /// Handles the WELCOME of a further connection.
    ///
    /// - Parameter reads: number of its READs that may have no answer.
    mutating func open(_ connection: Int, reads: Int) {
        readsOfOthers += Array(repeating: 0, count: max(0, connection - readsOfOthers.count))
        readsOfOthers[connection - 1] = reads
    }

    /// Handles the end of a further connection. Others carry its READs.
    mutating func close(_ connection: Int) {
        guard readsOfOthers.indices.contains(connection - 1) else { return }
        readsOfOthers[connection - 1] = 0
        for file in turns { pulls[file]?.detach(connection) }
        void = void.mapValues { $0.filter { $0.connection != connection } }
    }

    /// Closes all further connections.
    mutating func closeOthers() { for number in readsOfOthers.indices { close(number + 1) } }

    // MARK: READs

    /// Returns the READs to send now, with the numbers of their connections.
    mutating func reads() -> [(read: BodyRead, connection: Int)] {
        var reads: [(read: BodyRead, connection: Int)] = []
        if pulls.isEmpty { return reads }
        while turns.count < Self.mostComplete, let file = waiting.popFirst() {
            if pulls[file] != nil { turns.append(file) }
        }
        // Of each connection.
        var room = [mostReads - growingReads.count] + readsOfOthers
        for file in turns { for read in pulls[file]?.openReads ?? [] { room[read.connection] -= 1 } }
        for reads in void.values { for read in reads { room[read.connection] -= 1 } }
        var idle = 0
        while let connection = room.indices.max(by: { room[$0] < room[$1] }), room[connection] > 0 {
            if room[0] > 0, growingReads.count < mostGrowingReads, let file = growingTurns.popFirst() {
                guard let read = pulls[file]?.takeRead() else { continue }
                growingReads.append(file)
                noteUnread(file)
                reads.append((read, 0))
                room[0] -= 1
            } else if idle < turns.count, let file = turns.popFirst() {
                turns.append(file)
                guard let read = pulls[file]?.takeRead(over: connection) else {
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

    private mutating func nextFile() -> Int {
        lastFile += 1
        return lastFile
    }

    private func report(_ file: Int) -> Step {
        pulls[file]?.report.map { .report($0, file: file) } ?? .none
    }

    private func arrival(_ file: Int) -> [Step] {
        guard reportsArrival, let pull = pulls[file], let delivery = pull.delivery else { return [] }
        return [.arrived(delivery, bytes: pull.received, file: file)]
    }

    private mutating func deliverIfWhole(_ file: Int) -> [Step] {
        guard let pull = pulls[file], pull.isWhole, let delivery = pull.delivery else { return [] }
        complete[delivery.id.sequence] = nil
        forget(file)
        return [.deliver(delivery, file: file)]
    }

    private mutating func lose(_ sequence: UInt64) -> Step? {
        guard let file = complete.removeValue(forKey: sequence), let pull = pulls[file], let delivery = pull.delivery
        else { return nil }
        if !pull.openReads.isEmpty { void[sequence] = pull.openReads }
        discard(file)
        return .lose(delivery)
    }

    private mutating func discard(growing key: RequestKey) {
        guard let file = growing.removeValue(forKey: key) else { return }
        forgetReads(ofGrowing: file)
        discard(file)
    }

    private mutating func discard(_ file: Int) {
        forget(file)
        discarded.append(file)
    }

    private mutating func forget(_ file: Int) {
        pulls[file] = nil
        turns.removeAll { $0 == file }
        waiting.removeAll { $0 == file }
    }

    private mutating func forgetReads(ofGrowing file: Int) {
        growingReads.removeAll { $0 == file }
        growingTurns.removeAll { $0 == file }
    }

    private mutating func noteUnread(_ file: Int) {
        if pulls[file]?.hasUnread == true, !growingTurns.contains(file) { growingTurns.append(file) }
    }
}
