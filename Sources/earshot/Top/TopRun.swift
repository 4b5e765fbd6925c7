internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Run of `earshot top`: takes samples at an interval and shows them.
final class TopRun {
    /// Maximum number of handlers in a sample. They come in the order of their names, a few hundred in an answer.
    static let handlers = 4_000

    private let interval: Duration
    /// Number of samples after which the run ends; nil for no end.
    private let count: Int?
    private let json: Bool
    private var view = TopView()
    private var screen: TopScreen?
    private var status: JSONValue?
    private var rows: [HandlerRow] = []
    private var earlierSample: TopSample?
    private var samples = 0
    private var isQuerying = false
    private var isOver = false
    private var failure: CommandError?

    init(interval: Duration, count: Int?, json: Bool) {
        self.interval = interval
        self.count = count
        self.json = json
    }

    func run(in place: BusLocation) throws {
        let session = try BusSession.find(in: place) { [unowned self] session, event in
            take(event, session)
        }
        let signals = try SignalSource([SIGWINCH, SIGTSTP, SIGCONT, SIGQUIT])
        if !json, TopScreen.isPossible { screen = TopScreen(interrupt: session.signalDescriptor) }
        // Also after a failure or a signal.
        defer { screen?.leave() }
        try screen?.enter()
        let signalled = try session.loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while let signal = signals.next() { attempt { try take(signal: signal, session) } }
        }
        defer { session.loop.remove(signalled) }
        if let screen, screen.hasKeys {
            var reading: EventLoop.Registration?
            reading = try session.loop.add(STDIN_FILENO, .readable) { [unowned self] _ in
                guard let keys = screen.keys() else {
                    // The terminal is gone.
                    if let reading { session.loop.remove(reading) }
                    isOver = true
                    return
                }
                for key in keys { press(key, session) }
                attempt { try draw() }
            }
        }
        try draw()
        query(session)
        schedule(session)
        try session.run { isOver || failure != nil }
        if let failure { throw failure }
    }

    private func attempt(_ work: () throws -> Void) {
        do {
            try work()
        } catch let commandError as CommandError {
            failure = failure ?? commandError
        } catch {
            failure = failure ?? CommandError(.other, "\(error)")
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
        rows = []
        status = nil
        session.connection.query(.status)
        session.connection.query(.handlers)
    }

    private func take(_ event: ClientEvent, _ session: BusSession) {
        switch event {
        case .answer(.status, let json): status = JSONValue(json)
        case .answer(.handlers, let json):
            guard let answer = JSONValue(json) else { return }
            // A key acts on a name, which means the user's own handler.
            rows += HandlerRow.rows(answer).filter { $0.principal == nil }
            if rows.count < Self.handlers, let after = answer.member("handlers-next")?.text {
                session.connection.query(.handlers, QueryPage(after: after))
                return
            }
            isQuerying = false
            attempt { try complete(session) }
        case .removed(let pattern, let count):
            view.message = "dropped \(pattern) with \(count) pending requests"
            attempt { try draw() }
        case .refused(let reply): failure = Refused.commandError(reply)
        case .accepted, .terminal, .progress, .cancelled, .answer, .changed, .state: break
        }
    }

    private func complete(_ session: BusSession) throws {
        let seconds = Double(session.loop.now.nanoseconds) / 1e9
        guard let status, let sample = TopSample(status, rows, seconds: seconds) else {
            throw CommandError(
                .other, "cannot parse the answer of the broker; use command and broker of the same version")
        }
        samples += 1
        if screen == nil { try print(sample) }
        earlierSample = sample
        view.take(sample)
        try draw()
        if let count, samples >= count { isOver = true }
    }

    // MARK: Output

    private func draw() throws(CommandError) {
        guard let screen else { return }
        let size = screen.size
        try screen.draw(view.screen(columns: size.columns, rows: size.rows))
    }

    /// Prints the line of a sample.
    private func print(_ sample: TopSample) throws {
        let fields = sample.fields(since: earlierSample, time: Self.time())
        guard json else {
            return try StandardOutput().write(
                line: fields.map { "\($0.name)=\($0.value ?? "-")" }.joined(separator: " "))
        }
        var line = JSONLine()
        for field in fields {
            if field.isText {
                line.member(field.name, field.value)
            } else {
                line.member(field.name, number: field.value)
            }
        }
        try StandardOutput().write(line.finished())
    }

    /// The present time, RFC 3339 in UTC.
    private static func time() -> String {
        var now = Glibc.time(nil)
        var parts = unsafe tm()
        unsafe gmtime_r(&now, &parts)
        var text = [CChar](repeating: 0, count: 32)
        let count = unsafe strftime(&text, text.count, "%Y-%m-%dT%H:%M:%SZ", &parts)
        return String(decoding: text.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    // MARK: Keys and signals

    private func press(_ key: TopKey, _ session: BusSession) {
        switch view.press(key) {
        case .quit: isOver = true
        case .drop(let handler): session.connection.remove(.handler(handler))
        case nil: break
        }
    }

    private func take(signal: Int32, _ session: BusSession) throws {
        switch signal {
        case SIGWINCH: try draw()
        case SIGQUIT: session.end(CommandError(.interrupted))
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
