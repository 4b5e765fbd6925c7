internal import EarshotWire

@testable internal import EarshotClient

/// Fuzz target: the core of a client that reads bodies with READ, with a broker that sends any messages. Each byte is a
/// choice.
///
/// Bytes are stored only in answer to a READ, within the requested part and the announced length. A delivered body has
/// all of its bytes. The READs without an answer stay within the number that the broker granted to each connection. Each
/// file is delivered or closed once.
struct ReaderTarget {
    /// Maximum number of steps per input, so that inputs stay fast.
    private static let steps = 300
    private static let handlers = ["h", "h/1"].compactMap { HandlerID($0) }
    private static let requests = ["1", "2", "3"].compactMap { RequestID($0) }
    private static let errorCodes = ["unknown-body", "limit", "bad-message", "hello-required", "session-in-use"]

    /// A READ and the number of its connection, 0 for that of the session.
    private struct SentRead {
        let read: BodyRead
        let connectionNumber: Int
    }

    /// A file of the shell.
    private struct StoredFile {
        /// Parts that were stored.
        var storedRanges: [Range<Int>] = []
        var isClosed = false
    }

    private var core: ClientCore
    private var randomChoices: ByteSource
    /// READs without an answer.
    private var unansweredReads: [SentRead] = []
    /// READs of growing bodies that a terminal ended. The core may have ignored that terminal.
    private var voidedReads: [BodyRead] = []
    private let maximumOpenReads: Int
    /// The same of each further connection; empty for one that is not open.
    private var maximumOpenReadsByConnection: [Int: Int] = [:]
    private var files: [Int: StoredFile] = [:]
    /// Announced length of each body.
    private var announcedLengths: [BodyReference: Int] = [:]
    /// Requests of terminals.
    private var requestKeys: [UInt64: RequestKey] = [:]
    private var deliveries: [DeliveredTerminal] = []
    private var lastSequence: UInt64 = 0
    private var lastBrokerNumber: UInt64 = 0

    static func run(_ bytes: [UInt8]) {
        var target = ReaderTarget(bytes)
        for _ in 0..<steps where !target.randomChoices.isEmpty { target.performRandomStep() }
        target.endSession()
    }

    private init(_ bytes: [UInt8]) {
        randomChoices = ByteSource(bytes)
        var hello = Hello()
        hello.pullsBodies = true
        hello.leaseMilliseconds = 1_000
        core = ClientCore(hello: hello, consumerFinishesDeliveries: randomChoices.boolean())
        maximumOpenReads = 4 + randomChoices.number(below: 16)
        core.pulls.maximumReads = maximumOpenReads
        carryOut(core.linkOpened())
        receiveWelcome()
    }

    // MARK: Steps

    private mutating func performRandomStep() {
        let kind = randomChoices.byte()
        switch kind % 20 {
        case 0: submitFetch()
        case 1, 2: receiveTerminal()
        case 3, 4: receiveProgress()
        case 5, 6, 7: receiveRandomData()
        case 8, 9: answerRandomRead()
        case 10: receiveError()
        case 11:
            carryOut(core.cancel(RequestKey(chooseHandler(), chooseRequest())))
        case 12:
            if let actions = core.remove(.handler(chooseHandler())) { carryOut(actions) }
        case 13:
            let (isOne, name) = (randomChoices.boolean(), chooseHandler())
            let all = BrokerMessage.handlersRemoved(.handler(name), count: 1)
            receive(isOne ? .requestRemoved(name, chooseRequest(), wasOpen: true) : all)
        case 14:
            let pattern = HandlerPattern.handler(chooseHandler())
            carryOut(randomChoices.boolean() ? core.subscribe(pattern) : core.unsubscribe(pattern))
        case 15: if let delivery = randomChoices.element(of: deliveries) { finishOrResubmit(delivery) }
        case 16: reconnect()
        case 17: toggleExtraConnection()
        case 18: refuseReadOfExtraConnection()
        default: receiveRandomBytes()
        }
        // Several messages can be in one pass.
        if kind < 200 { endPass() }
    }

    private mutating func endPass() { carryOut(core.passEnded()) }

    /// A broker drops the READs of removed requests.
    private mutating func voidReadsOfRequests(where isRemoved: (RequestKey) -> Bool) {
        let keys = requestKeys
        voidReads {
            if case .terminal(let sequence) = $0.body { keys[sequence].map(isRemoved) ?? false } else { false }
        }
    }

    /// Moves READs to those that need no answer.
    private mutating func voidReads(where isVoid: (BodyRead) -> Bool) {
        voidedReads += unansweredReads.lazy.map(\.read).filter(isVoid)
        unansweredReads.removeAll { isVoid($0.read) }
    }

    private mutating func chooseHandler() -> HandlerID {
        Self.handlers[randomChoices.number(below: Self.handlers.count)]
    }

    private mutating func chooseRequest() -> RequestID {
        Self.requests[randomChoices.number(below: Self.requests.count)]
    }

    private mutating func chooseGeneration() -> Generation? { Generation("1.\(randomChoices.number(below: 3))") }

    private mutating func receiveWelcome() {
        if randomChoices.number(below: 4) == 0 { lastBrokerNumber += 1 }
        var welcome = Welcome(broker: BrokerInstance(rawValue: lastBrokerNumber + 1), window: 256)
        let form = randomChoices.byte()
        welcome.pullsBodies = form % 8 != 7
        welcome.token = form & 8 == 0 ? SessionToken(highBits: 0, lowBits: 1) : nil
        let isResumed = form & 1 == 1 && core.sessionToken != nil
        welcome.lastReceivedNumber = isResumed ? core.sentNumbers.lastAssignedNumber : nil
        if !isResumed { (lastSequence, announcedLengths, requestKeys) = (0, [:], [:]) }
        carryOut(core.messageReceived(NumberedAnswer(.welcome(welcome))))
    }

    private mutating func submitFetch() {
        var fetch = Fetch(
            handler: chooseHandler(), request: chooseRequest(), url: "http://o/\(randomChoices.number(below: 3))")
        let options = randomChoices.byte()
        fetch.options.streams = options & 3 != 0
        fetch.options.replacesHandler = options % 16 == 14
        carryOut(core.fetch(Shared(fetch)))
    }

    private mutating func receiveTerminal() {
        var response = Terminal.Response(url: "http://o/")
        response.isPulled = randomChoices.number(below: 8) != 0
        response.bodyFilePath = randomChoices.number(below: 16) == 0 ? "/etc/passwd" : nil
        response.bodyByteCount = randomChoices.sizeNearLimits()
        response.generation = chooseGeneration()
        let sequence = randomChoices.number(below: 8) == 0 ? UInt64(randomChoices.byte()) : lastSequence + 1
        let isNew = sequence == lastSequence + 1
        if isNew { lastSequence = sequence }
        let terminal = Terminal(
            handler: chooseHandler(), request: chooseRequest(), sequence: sequence,
            outcome: .result(status: 200, response))
        // The core ignores a number that it has received, so any of the lengths may count.
        announcedLengths[.terminal(sequence)] = max(announcedLengths[.terminal(sequence)] ?? 0, response.bodyByteCount)
        if requestKeys[sequence] == nil { requestKeys[sequence] = RequestKey(terminal.handler, terminal.request) }
        voidReads { $0.body == .request(terminal.handler, terminal.request) }
        receive(.terminal(terminal))
    }

    private mutating func receiveProgress() {
        var progress = Progress(
            handler: chooseHandler(), request: chooseRequest(), receivedBytes: randomChoices.sizeNearLimits(),
            totalBytes: nil)
        progress.generation = randomChoices.number(below: 8) == 0 ? nil : chooseGeneration()
        progress.filePath = randomChoices.number(below: 16) == 0 ? "/etc/passwd" : nil
        let body = BodyReference.request(progress.handler, progress.request)
        announcedLengths[body] = max(announcedLengths[body] ?? 0, progress.receivedBytes)
        receive(.progress(progress))
    }

    private mutating func receiveRandomData() {
        let body: BodyReference =
            randomChoices.boolean()
            ? .terminal(UInt64(randomChoices.number(below: 8))) : .request(chooseHandler(), chooseRequest())
        let data = BodyData(
            body, offset: randomChoices.sizeNearLimits(), generation: randomChoices.boolean() ? chooseGeneration() : nil
        )
        receiveData(data, count: min(randomChoices.sizeNearLimits(), 1 << 20))
    }

    /// Answers a READ, completely or in part.
    private mutating func answerRandomRead() {
        guard let read = randomChoices.element(of: unansweredReads)?.read else { return }
        let form = randomChoices.byte()
        let count = form < 160 ? read.maximumBytes : min(read.maximumBytes, randomChoices.sizeNearLimits())
        receiveData(BodyData(read.body, offset: read.offset, generation: read.generation), count: count)
    }

    private mutating func receiveData(_ data: BodyData, count: Int) {
        // The core forgets the READs of a discarded body, so the last one counts.
        let isNamed = { (read: BodyRead) in read.body == data.body && read.offset == data.offset }
        let read =
            unansweredReads.lastIndex { isNamed($0.read) }.map { unansweredReads.remove(at: $0).read }
            ?? voidedReads.lastIndex(where: isNamed).map { voidedReads.remove(at: $0) }
        carryOut(core.messageReceived(NumberedAnswer(.bodyData(data)), count: count), count: count, of: read)
    }

    private mutating func receiveError() {
        let code = Self.errorCodes[randomChoices.number(below: Self.errorCodes.count)]
        guard randomChoices.boolean() else { return receive(.error(ErrorReply(code: code))) }
        let body: BodyReference =
            randomChoices.boolean()
            ? .terminal(UInt64(randomChoices.number(below: 8))) : .request(chooseHandler(), chooseRequest())
        if case .terminal = body,
            let index = unansweredReads.firstIndex(where: { $0.read.body == body && $0.connectionNumber == 0 })
        {
            unansweredReads.remove(at: index)
        }
        var data = BodyData(body, offset: 0)
        data.errorCode = code
        receive(.bodyData(data))
    }

    /// Opens or closes a further connection.
    private mutating func toggleExtraConnection() {
        let number = 1 + randomChoices.number(below: 3)
        let form = randomChoices.byte()
        if form & 1 == 0 {
            guard core.phase == .ready, core.sessionToken != nil, maximumOpenReadsByConnection[number] == nil else {
                return
            }
            maximumOpenReadsByConnection[number] = 1 + Int(form >> 4)
            core.pulls.openConnection(number, maximumReads: 1 + Int(form >> 4))
        } else {
            closeExtraConnection(number: number)
        }
    }

    private mutating func closeExtraConnection(number: Int) {
        maximumOpenReadsByConnection[number] = nil
        core.pulls.closeConnection(number)
        unansweredReads.removeAll { $0.connectionNumber == number }
    }

    /// Refuses a READ of a further connection.
    private mutating func refuseReadOfExtraConnection() {
        guard let refused = randomChoices.element(of: unansweredReads), refused.connectionNumber > 0,
            case .terminal = refused.read.body
        else { return }
        let index = unansweredReads.firstIndex {
            $0.connectionNumber == refused.connectionNumber && $0.read.body == refused.read.body
        }
        if let index { unansweredReads.remove(at: index) }
        var data = BodyData(refused.read.body, offset: refused.read.offset)
        data.errorCode = "unknown-body"
        carryOut(core.dataReceived(data, count: 0, over: refused.connectionNumber))
    }

    private mutating func receiveRandomBytes() {
        let count = randomChoices.number(below: 64)
        let head = (0..<count).map { _ in randomChoices.byte() }
        do throws(WireError) {
            let message = try NumberedAnswer(head: head)
            // Those are in the other steps, with the books that they need.
            switch message.message {
            case .bodyData, .terminal, .progress, .welcome: return
            default: carryOut(core.messageReceived(message))
            }
        } catch {
            guard error.code != .unknownVerb else { return }
            let fragment = BrokerFragment(head: head)
            if let sequence = fragment.sequence, sequence == lastSequence + 1 { lastSequence = sequence }
            carryOut(core.malformedMessageReceived(fragment, error))
        }
    }

    private mutating func receive(_ message: BrokerMessage) {
        let number = message.isReply ? UInt64(randomChoices.number(below: 8)) : 0
        carryOut(core.messageReceived(NumberedAnswer(message, answeredNumber: number > 0 ? number : nil)))
    }

    private mutating func finishOrResubmit(_ delivery: DeliveredTerminal) {
        if randomChoices.boolean(), let actions = core.resubmitRequest(of: delivery) { return carryOut(actions) }
        core.finishDelivery(delivery.id)
    }

    private mutating func reconnect() {
        (unansweredReads, voidedReads, maximumOpenReadsByConnection) = ([], [], [:])
        carryOut(core.linkLost())
        carryOut(core.linkOpened())
        if randomChoices.number(below: 4) != 0 { receiveWelcome() }
    }

    // MARK: Actions

    private mutating func carryOut(_ actions: [ClientAction], count: Int = 0, of read: BodyRead? = nil) {
        for action in actions {
            switch action {
            case .send(.readBody(let read)): recordSentRead(read, 0)
            case .sendRead(let read, let connection): recordSentRead(read, connection)
            case .send(.acknowledge(let last)):
                voidReads { if case .terminal(let sequence) = $0.body { sequence <= last } else { false } }
            case .send(.hello):
                // A new connection, or a session that the broker does not know. The shell closes the further connections.
                voidReads { _ in true }
                maximumOpenReadsByConnection = [:]
            // These make READs void.
            case .send(.removeRequest(let handler, let request)):
                voidReadsOfRequests { $0 == RequestKey(handler, request) }
            case .send(.removeHandlers(let pattern)): voidReadsOfRequests { pattern.matches($0.handler) }
            case .send(.fetch(let fetch)) where fetch.options.replacesHandler:
                voidReadsOfRequests { $0.handler == fetch.handler }
            case .store(let file, let offset, let stored):
                recordStoredBytes(stored, of: count, at: offset, in: file, read)
            case .deliver(let delivery):
                precondition(
                    delivery.terminal.response?.bodyFilePath != "/etc/passwd" || !core.isPulling, "a path of the broker"
                )
                deliveries.append(delivery)
            case .deliverReceived(let delivery, let file):
                checkStoredFile(files[file] ?? StoredFile(), of: delivery)
                closeFile(file)
                deliveries.append(delivery)
            case .reportGrowth(let progress, let file):
                precondition(progress.receivedBytes >= 0 && files[file]?.isClosed != true, "growth of a closed file")
            case .beginBody, .reportArrival: preconditionFailure("a report without a keeper")
            case .report(.progress(let progress)):
                precondition(progress.filePath == nil || !core.isPulling, "a path of the broker")
            case .discard(let file): closeFile(file)
            case .send, .report: break
            case .reconnect:
                (unansweredReads, voidedReads, maximumOpenReadsByConnection) = ([], [], [:])
                carryOut(core.linkLost())
                carryOut(core.linkOpened())
            }
        }
        if deliveries.count > 64 { deliveries.removeFirst(deliveries.count - 64) }
    }

    private mutating func recordSentRead(_ read: BodyRead, _ connection: Int) {
        precondition((1...WireLimits.dataBytes).contains(read.maximumBytes), "\(read) has a wrong length")
        let end = read.offset.addingReportingOverflow(read.maximumBytes)
        precondition(
            read.offset >= 0 && !end.overflow && end.partialValue <= announcedLengths[read.body] ?? 0,
            "\(read) is beyond \(announcedLengths[read.body] ?? 0)")
        unansweredReads.append(SentRead(read: read, connectionNumber: connection))
        let complete = unansweredReads.count {
            if case .terminal = $0.read.body { $0.connectionNumber == connection } else { false }
        }
        let most = connection == 0 ? maximumOpenReads : maximumOpenReadsByConnection[connection] ?? 0
        precondition(complete <= most, "\(complete) READs over connection \(connection), more than \(most)")
    }

    private mutating func recordStoredBytes(
        _ stored: Int, of count: Int, at offset: Int, in file: Int, _ read: BodyRead?
    ) {
        guard let read else { preconditionFailure("\(stored) bytes are stored without a READ") }
        precondition(
            read.offset == offset && (1...read.maximumBytes).contains(stored) && stored <= count,
            "\(stored) of \(count) bytes at \(offset) for \(read)")
        precondition(files[file]?.isClosed != true, "file \(file) is closed")
        files[file, default: StoredFile()].storedRanges.append(offset..<offset + stored)
    }

    private func checkStoredFile(_ file: StoredFile, of delivery: DeliveredTerminal) {
        var end = 0
        for part in file.storedRanges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if part.lowerBound > end { break }
            end = max(end, part.upperBound)
        }
        let length = delivery.terminal.response?.bodyByteCount ?? 0
        precondition(end == length && !file.isClosed, "\(end) of \(length) bytes are delivered")
    }

    private mutating func closeFile(_ file: Int) {
        precondition(files[file]?.isClosed != true, "file \(file) is closed twice")
        files[file, default: StoredFile()].isClosed = true
    }

    /// Ends the session: no file stays open.
    private mutating func endSession() {
        core.sessionToken = nil
        carryOut(core.linkLost())
        carryOut(core.passEnded())
        precondition(core.pulls.isEmpty, "a body outlives its session")
        for (number, file) in files { precondition(file.isClosed, "file \(number) is not closed") }
    }
}
