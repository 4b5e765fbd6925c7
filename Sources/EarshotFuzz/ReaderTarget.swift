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
    private static let codes = ["unknown-body", "limit", "bad-message", "hello-required", "session-in-use"]

    /// A READ and the number of its connection, 0 for that of the session.
    private struct Sent {
        let read: BodyRead
        let connection: Int
    }

    /// A file of the shell.
    private struct File {
        /// Parts that were stored.
        var parts: [Range<Int>] = []
        var isClosed = false
    }

    private var core: ClientCore
    private var choices: ByteSource
    /// READs without an answer.
    private var reads: [Sent] = []
    /// READs of growing bodies that a terminal ended. The core may have ignored that terminal.
    private var void: [BodyRead] = []
    private let most: Int
    /// The same of each further connection; empty for one that is not open.
    private var mostOfOthers: [Int: Int] = [:]
    private var files: [Int: File] = [:]
    /// Announced length of each body.
    private var lengths: [BodyReference: Int] = [:]
    /// Requests of terminals.
    private var keys: [UInt64: RequestKey] = [:]
    private var deliveries: [DeliveredTerminal] = []
    private var lastSequence: UInt64 = 0
    private var lastBroker: UInt64 = 0

    static func run(_ bytes: [UInt8]) {
        var target = ReaderTarget(bytes)
        for _ in 0..<steps where !target.choices.isEmpty { target.step() }
        target.end()
    }

    private init(_ bytes: [UInt8]) {
        choices = ByteSource(bytes)
        var hello = Hello()
        hello.isPulling = true
        hello.leaseMilliseconds = 1_000
        core = ClientCore(hello: hello, finishesNone: choices.flag())
        most = 4 + choices.number(16)
        core.pulls.mostReads = most
        carryOut(core.linkOpened())
        welcome()
    }

    // MARK: Steps

    private mutating func step() {
        let kind = choices.byte()
        switch kind % 20 {
        case 0: fetch()
        case 1, 2: terminal()
        case 3, 4: progress()
        case 5, 6, 7: data()
        case 8, 9: answerRead()
        case 10: error()
        case 11:
            carryOut(core.cancel(RequestKey(handler(), request())))
        case 12:
            if let actions = core.remove(.handler(handler())) { carryOut(actions) }
        case 13:
            let (isOne, name) = (choices.flag(), handler())
            let all = BrokerMessage.removed(.handler(name), count: 1)
            send(isOne ? .requestRemoved(name, request(), wasOpen: true) : all)
        case 14:
            let pattern = HandlerPattern.handler(handler())
            carryOut(choices.flag() ? core.subscribe(pattern) : core.unsubscribe(pattern))
        case 15: if let delivery = choices.element(of: deliveries) { finish(delivery) }
        case 16: reconnect()
        case 17: openOrClose()
        case 18: refuseElsewhere()
        default: raw()
        }
        // Several messages can be in one pass.
        if kind < 200 { endPass() }
    }

    private mutating func endPass() { carryOut(core.passEnded()) }

    /// A broker drops the READs of removed requests.
    private mutating func drop(where isRemoved: (RequestKey) -> Bool) {
        let keys = keys
        void { if case .terminal(let sequence) = $0.body { keys[sequence].map(isRemoved) ?? false } else { false } }
    }

    /// Moves READs to those that need no answer.
    private mutating func void(where isVoid: (BodyRead) -> Bool) {
        void += reads.lazy.map(\.read).filter(isVoid)
        reads.removeAll { isVoid($0.read) }
    }

    private mutating func handler() -> HandlerID { Self.handlers[choices.number(Self.handlers.count)] }

    private mutating func request() -> RequestID { Self.requests[choices.number(Self.requests.count)] }

    private mutating func generation() -> Generation? { Generation("1.\(choices.number(3))") }

    private mutating func welcome() {
        if choices.number(4) == 0 { lastBroker += 1 }
        var welcome = Welcome(broker: BrokerInstance(rawValue: lastBroker + 1), window: 256)
        let form = choices.byte()
        welcome.isPulling = form % 8 != 7
        welcome.token = form & 8 == 0 ? SessionToken(high: 0, low: 1) : nil
        let isResumed = form & 1 == 1 && core.token != nil
        welcome.lastReceived = isResumed ? core.numbers.lastNumber : nil
        if !isResumed { (lastSequence, lengths, keys) = (0, [:], [:]) }
        carryOut(core.received(NumberedAnswer(.welcome(welcome))))
    }

    private mutating func fetch() {
        var fetch = Fetch(handler: handler(), request: request(), url: "http://o/\(choices.number(3))")
        let options = choices.byte()
        fetch.options.streams = options & 3 != 0
        fetch.options.replacesHandler = options % 16 == 14
        carryOut(core.fetch(Shared(fetch)))
    }

    private mutating func terminal() {
        var response = Terminal.Response(url: "http://o/")
        response.isPulled = choices.number(8) != 0
        response.file = choices.number(16) == 0 ? "/etc/passwd" : nil
        response.length = choices.size()
        response.generation = generation()
        let sequence = choices.number(8) == 0 ? UInt64(choices.byte()) : lastSequence + 1
        let isNew = sequence == lastSequence + 1
        if isNew { lastSequence = sequence }
        let terminal = Terminal(
            handler: handler(), request: request(), sequence: sequence, outcome: .result(status: 200, response))
        // The core ignores a number that it has received, so any of the lengths may count.
        lengths[.terminal(sequence)] = max(lengths[.terminal(sequence)] ?? 0, response.length)
        if keys[sequence] == nil { keys[sequence] = RequestKey(terminal.handler, terminal.request) }
        void { $0.body == .request(terminal.handler, terminal.request) }
        send(.terminal(terminal))
    }

    private mutating func progress() {
        var progress = Progress(handler: handler(), request: request(), received: choices.size(), total: nil)
        progress.generation = choices.number(8) == 0 ? nil : generation()
        progress.file = choices.number(16) == 0 ? "/etc/passwd" : nil
        let body = BodyReference.request(progress.handler, progress.request)
        lengths[body] = max(lengths[body] ?? 0, progress.received)
        send(.progress(progress))
    }

    private mutating func data() {
        let body: BodyReference =
            choices.flag() ? .terminal(UInt64(choices.number(8))) : .request(handler(), request())
        let data = BodyData(body, offset: choices.size(), generation: choices.flag() ? generation() : nil)
        answer(data, count: min(choices.size(), 1 << 20))
    }

    /// Answers a READ, completely or in part.
    private mutating func answerRead() {
        guard let read = choices.element(of: reads)?.read else { return }
        let form = choices.byte()
        let count = form < 160 ? read.length : min(read.length, choices.size())
        answer(BodyData(read.body, offset: read.offset, generation: read.generation), count: count)
    }

    private mutating func answer(_ data: BodyData, count: Int) {
        // The core forgets the READs of a discarded body, so the last one counts.
        let isNamed = { (read: BodyRead) in read.body == data.body && read.offset == data.offset }
        let read =
            reads.lastIndex { isNamed($0.read) }.map { reads.remove(at: $0).read }
            ?? void.lastIndex(where: isNamed).map { void.remove(at: $0) }
        carryOut(core.received(NumberedAnswer(.data(data)), count: count), count: count, of: read)
    }

    private mutating func error() {
        let code = Self.codes[choices.number(Self.codes.count)]
        guard choices.flag() else { return send(.error(ErrorReply(code: code))) }
        let body: BodyReference =
            choices.flag() ? .terminal(UInt64(choices.number(8))) : .request(handler(), request())
        if case .terminal = body,
            let index = reads.firstIndex(where: { $0.read.body == body && $0.connection == 0 })
        {
            reads.remove(at: index)
        }
        var data = BodyData(body, offset: 0)
        data.error = code
        send(.data(data))
    }

    /// Opens or closes a further connection.
    private mutating func openOrClose() {
        let number = 1 + choices.number(3)
        let form = choices.byte()
        if form & 1 == 0 {
            guard core.phase == .ready, core.token != nil, mostOfOthers[number] == nil else { return }
            mostOfOthers[number] = 1 + Int(form >> 4)
            core.pulls.open(number, reads: 1 + Int(form >> 4))
        } else {
            close(connection: number)
        }
    }

    private mutating func close(connection number: Int) {
        mostOfOthers[number] = nil
        core.pulls.close(number)
        reads.removeAll { $0.connection == number }
    }

    /// Refuses a READ of a further connection.
    private mutating func refuseElsewhere() {
        guard let refused = choices.element(of: reads), refused.connection > 0, case .terminal = refused.read.body
        else { return }
        let index = reads.firstIndex { $0.connection == refused.connection && $0.read.body == refused.read.body }
        if let index { reads.remove(at: index) }
        var data = BodyData(refused.read.body, offset: refused.read.offset)
        data.error = "unknown-body"
        carryOut(core.dataReceived(data, count: 0, over: refused.connection))
    }

    private mutating func raw() {
        let count = choices.number(64)
        let head = (0..<count).map { _ in choices.byte() }
        do throws(WireError) {
            let message = try NumberedAnswer(head: head)
            // Those are in the other steps, with the books that they need.
            switch message.message {
            case .data, .terminal, .progress, .welcome: return
            default: carryOut(core.received(message))
            }
        } catch {
            guard error.code != .unknownVerb else { return }
            let fragment = BrokerFragment(head: head)
            if let sequence = fragment.sequence, sequence == lastSequence + 1 { lastSequence = sequence }
            carryOut(core.received(malformed: fragment, error))
        }
    }

    private mutating func send(_ message: BrokerMessage) {
        let number = message.isReply ? UInt64(choices.number(8)) : 0
        carryOut(core.received(NumberedAnswer(message, to: number > 0 ? number : nil)))
    }

    private mutating func finish(_ delivery: DeliveredTerminal) {
        if choices.flag(), let actions = core.resubmit(delivery) { return carryOut(actions) }
        core.finish(delivery.id)
    }

    private mutating func reconnect() {
        (reads, void, mostOfOthers) = ([], [], [:])
        carryOut(core.linkLost())
        carryOut(core.linkOpened())
        if choices.number(4) != 0 { welcome() }
    }

    // MARK: Actions

    private mutating func carryOut(_ actions: [ClientAction], count: Int = 0, of read: BodyRead? = nil) {
        for action in actions {
            switch action {
            case .send(.read(let read)): sent(read, 0)
            case .read(let read, let connection): sent(read, connection)
            case .send(.acknowledge(let last)):
                void { if case .terminal(let sequence) = $0.body { sequence <= last } else { false } }
            case .send(.hello):
                // A new connection, or a session that the broker does not know. The shell closes the further connections.
                void { _ in true }
                mostOfOthers = [:]
            // These make READs void.
            case .send(.removeRequest(let handler, let request)): drop { $0 == RequestKey(handler, request) }
            case .send(.remove(let pattern)): drop { pattern.matches($0.handler) }
            case .send(.fetch(let fetch)) where fetch.options.replacesHandler:
                drop { $0.handler == fetch.handler }
            case .store(let file, let offset, let stored):
                store(stored, of: count, at: offset, in: file, read)
            case .deliver(let delivery):
                precondition(
                    delivery.terminal.response?.file != "/etc/passwd" || !core.isPulling, "a path of the broker")
                deliveries.append(delivery)
            case .deliverReceived(let delivery, let file):
                check(files[file] ?? File(), of: delivery)
                close(file)
                deliveries.append(delivery)
            case .reportGrowth(let progress, let file):
                precondition(progress.received >= 0 && files[file]?.isClosed != true, "growth of a closed file")
            case .beginBody, .reportArrival: preconditionFailure("a report without a keeper")
            case .report(.progress(let progress)):
                precondition(progress.file == nil || !core.isPulling, "a path of the broker")
            case .discard(let file): close(file)
            case .send, .report: break
            case .reconnect:
                (reads, void, mostOfOthers) = ([], [], [:])
                carryOut(core.linkLost())
                carryOut(core.linkOpened())
            }
        }
        if deliveries.count > 64 { deliveries.removeFirst(deliveries.count - 64) }
    }

    private mutating func sent(_ read: BodyRead, _ connection: Int) {
        precondition((1...WireLimits.dataBytes).contains(read.length), "\(read) has a wrong length")
        let end = read.offset.addingReportingOverflow(read.length)
        precondition(
            read.offset >= 0 && !end.overflow && end.partialValue <= lengths[read.body] ?? 0,
            "\(read) is beyond \(lengths[read.body] ?? 0)")
        reads.append(Sent(read: read, connection: connection))
        let complete = reads.count {
            if case .terminal = $0.read.body { $0.connection == connection } else { false }
        }
        let most = connection == 0 ? most : mostOfOthers[connection] ?? 0
        precondition(complete <= most, "\(complete) READs over connection \(connection), more than \(most)")
    }

    private mutating func store(_ stored: Int, of count: Int, at offset: Int, in file: Int, _ read: BodyRead?) {
        guard let read else { preconditionFailure("\(stored) bytes are stored without a READ") }
        precondition(
            read.offset == offset && (1...read.length).contains(stored) && stored <= count,
            "\(stored) of \(count) bytes at \(offset) for \(read)")
        precondition(files[file]?.isClosed != true, "file \(file) is closed")
        files[file, default: File()].parts.append(offset..<offset + stored)
    }

    private func check(_ file: File, of delivery: DeliveredTerminal) {
        var end = 0
        for part in file.parts.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if part.lowerBound > end { break }
            end = max(end, part.upperBound)
        }
        let length = delivery.terminal.response?.length ?? 0
        precondition(end == length && !file.isClosed, "\(end) of \(length) bytes are delivered")
    }

    private mutating func close(_ file: Int) {
        precondition(files[file]?.isClosed != true, "file \(file) is closed twice")
        files[file, default: File()].isClosed = true
    }

    /// Ends the session: no file stays open.
    private mutating func end() {
        core.token = nil
        carryOut(core.linkLost())
        carryOut(core.passEnded())
        precondition(core.pulls.isEmpty, "a body outlives its session")
        for (number, file) in files { precondition(file.isClosed, "file \(number) is not closed") }
    }
}
