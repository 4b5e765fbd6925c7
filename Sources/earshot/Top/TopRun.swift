internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Run of `earshot top`: takes samples at an interval and shows them.
final class TopRun {
    /// Maximum number of handlers in a sample. They come in the order of their names, a few hundred in an answer.
    private static let maximumHandlers = 4_000

    private let interval: Duration
    /// Number of samples after which the run ends; nil for no end.
    private let count: Int?
    private let json: Bool
    private var view = TopView()
    private var screen: TopScreen?
    private var status: JSONValue?
    private var handlerRows: [HandlerRow] = []
    private var earlierSample: TopSample?
    private var sampleCount = 0
    private var isQuerying = false
    private var isFinished = false
    private var failure: CommandError?

    init(interval: Duration, count: Int?, json: Bool) {
        self.interval = interval
        self.count = count
        self.json = json
    }

    func run(in place: BusLocation) throws {
        let session = try BusSession.connect(to: place) { [unowned self] session, event in
            handleEvent(event, session)
        }
        let signals = try SignalSource([SIGWINCH, SIGTSTP, SIGCONT, SIGQUIT])
        if !json, TopScreen.isSupported { screen = TopScreen(interrupt: session.signalDescriptor) }
        // Also after a failure or a signal.
        defer { screen?.leave() }
        try screen?.enter()
        let signalRegistration = try session.loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while let signal = signals.nextSignal() { recordFailure { try handleSignal(signal, session) } }
        }
        defer { session.loop.remove(signalRegistration) }
        if let screen, screen.canReadKeys {
            var keyRegistration: EventLoop.Registration?
            keyRegistration = try session.loop.add(STDIN_FILENO, .readable) { [unowned self] _ in
                guard let keys = screen.readKeys() else {
                    // The terminal is gone.
                    if let keyRegistration { session.loop.remove(keyRegistration) }
                    isFinished = true
                    return
                }
                for key in keys { handleKey(key, session) }
                recordFailure { try draw() }
            }
        }
        try draw()
        query(session)
        schedule(session)
        try session.run { isFinished || failure != nil }
        if let failure { throw failure }
    }

    private func recordFailure(of work: () throws -> Void) {
        do {
            try work()
        } catch let commandError as CommandError {
            failure = failure ?? commandError
        } catch {
            failure = failure ?? CommandError(.generalError, "\(error)")
        }
    }

    // MARK: Samples

    private func schedule(_ session: BusSession) {
        session.loop.setTimer(after: interval) { [unowned self, unowned session] in
            query(session)
            schedule(session)
        }
    }

    private func query(_ session: BusSession) {
        guard !isQuerying else { return }
        isQuerying = true
        handlerRows = []
        status = nil
        session.connection.query(.status)
        session.connection.query(.handlers)
    }

    private func handleEvent(_ event: ClientEvent, _ session: BusSession) {
        switch event {
        case .queryAnswer(.status, let json): status = session.parseAnswer(json)
        case .queryAnswer(.handlers, let json):
            guard let answer = session.parseAnswer(json) else { return }
            // A key acts on a name, which means the user's own handler.
            handlerRows += HandlerRow.rows(answer).filter { $0.principal == nil }
            if handlerRows.count < Self.maximumHandlers, let after = answer.member("handlers-next")?.scalarText {
                session.connection.query(.handlers, QueryPage(cursor: after))
                return
            }
            isQuerying = false
            recordFailure { try completeSample(session) }
        case .removed(let pattern, let count):
            view.footerMessage = "dropped \(pattern) with \(count) pending requests"
            recordFailure { try draw() }
        case .messageRefused(let reply): failure = .refused(reply)
        case .accepted, .terminal, .progress, .cancelled, .queryAnswer, .settingChanged, .state: break
        }
    }

    private func completeSample(_ session: BusSession) throws {
        let seconds = Double(session.loop.now.nanoseconds) / 1e9
        guard let status, let sample = TopSample(status, handlerRows, seconds: seconds) else {
            throw CommandError.unreadableAnswer
        }
        sampleCount += 1
        if screen == nil { try printSample(sample) }
        earlierSample = sample
        view.showSample(sample)
        try draw()
        if let count, sampleCount >= count { isFinished = true }
    }

    // MARK: Output

    private func draw() throws(CommandError) {
        guard let screen else { return }
        let size = screen.terminalSize
        try screen.draw(view.renderScreen(columns: size.columns, rows: size.rows))
    }

    /// Prints the line of a sample.
    private func printSample(_ sample: TopSample) throws {
        let fields = sample.fields(since: earlierSample, time: Self.timestamp())
        guard json else {
            return try StandardOutput().write(
                line: fields.map { "\($0.name)=\($0.value ?? "-")" }.joined(separator: " "))
        }
        var line = JSONLine()
        for field in fields {
            if field.isText {
                line.appendMember(field.name, field.value)
            } else {
                line.appendMember(field.name, number: field.value)
            }
        }
        try StandardOutput().write(line.finishedLine())
    }

    /// Returns the present time, RFC 3339 in UTC.
    private static func timestamp() -> String {
        var now = Glibc.time(nil)
        var parts = unsafe tm()
        unsafe gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = unsafe strftime(&text, text.count, "%Y-%m-%dT%H:%M:%SZ", &parts)
        return String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    // MARK: Keys and signals

    private func handleKey(_ key: TopKey, _ session: BusSession) {
        switch view.handleKey(key) {
        case .quit: isFinished = true
        case .dropHandler(let handler): session.connection.remove(.handler(handler))
        case nil: break
        }
    }

    private func handleSignal(_ signal: Int32, _ session: BusSession) throws {
        switch signal {
        case SIGWINCH: try draw()
        case SIGQUIT: session.end(with: CommandError(.interrupted))
        case SIGTSTP:
            screen?.leave()
            // Stops here until SIGCONT, which restores the screen.
            _ = kill(getpid(), SIGSTOP)
        default:
            try screen?.enter()
            try draw()
        }
    }
}
