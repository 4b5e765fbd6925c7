internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Progress of a run on standard error: lines at the bottom of a terminal, or lines of a log at growing intervals.
///
/// While nothing moves, it asks the broker for the reason why the oldest request waits.
final class ProgressView {
    /// Redraw interval of a terminal.
    private static let drawInterval = Duration.milliseconds(200)
    /// Interval between checks without a terminal.
    private static let checkInterval = Duration.seconds(1)
    /// Time without progress until the broker is asked for the reason, and then the time between two questions.
    /// Longer than the interval of PROGRESS.
    private static let patience = 2.0
    /// Time until the first line of a log; each further interval is twice as long.
    private static let firstLogSeconds = 3.0
    /// Maximum interval between lines of a log.
    private static let mostLogSeconds = 60.0

    /// Origin of the values that change outside.
    struct Source {
        /// Known URLs, whether more may arrive, and the counters.
        let state: () -> RunSnapshot
        /// Pending request with the lowest index; nil if there is none.
        let oldestRequest: () -> RequestID?
        /// Asks the broker for the reason why a request waits.
        let requestReason: (RequestID) -> Void
    }

    private struct Running {
        let index: Int
        var transfer: RunSnapshot.Transfer
    }

    private let loop: EventLoop
    private let stream = ErrorStream()
    private let source: Source
    /// Whether a body goes to the same terminal. Then only the reason for a wait is shown, before the first byte.
    private let isReserved: Bool
    private let started: LoopTime
    private var running: [RequestID: Running] = [:]
    private var rate = TransferRate()
    private var waiting: String?
    /// Number of finished requests and of bytes at the last change, and its time in seconds since the start.
    private var lastChange = (done: 0, bytes: 0.0, seconds: 0.0)
    private var queriedAt = -ProgressView.patience
    private var nextLog = ProgressView.firstLogSeconds
    private var logInterval = ProgressView.firstLogSeconds
    private var timer: TimerID?
    /// Number of lines on the terminal.
    private var shownLines = 0

    init(_ loop: EventLoop, isReserved: Bool, _ source: Source) {
        self.loop = loop
        self.isReserved = isReserved
        self.source = source
        started = loop.now
        schedule()
    }

    deinit { clear() }

    /// Value of the FETCH option `progress`, in milliseconds.
    var progressMilliseconds: Int { stream.isTerminal ? 200 : 1_000 }

    // MARK: Events

    func progressed(_ progress: Progress, index: Int, url: String) {
        let first = RunSnapshot.Transfer(
            name: FileNames.name(of: url), received: progress.received, isResumable: progress.isResumable)
        running[progress.request, default: Running(index: index, transfer: first)].transfer.progressed(
            progress.received, of: progress.total)
    }

    func ended(_ request: RequestID) {
        if !running.isEmpty { running[request] = nil }
    }

    /// Handles the broker's answer to `QUERY why`.
    func answered(_ json: [UInt8]) {
        let idle = elapsedSeconds - lastChange.seconds
        guard idle >= Self.patience, let answer = JSONValue(json) else { return }
        waiting = WaitReason.text(answer, idle: idle).map(TerminalText.escaped)
    }

    // MARK: Output

    /// Erases the progress before other output.
    func clear() {
        guard shownLines > 0 else { return }
        stream.write(erasure)
        shownLines = 0
    }

    /// Ends the progress.
    func end() {
        clear()
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    private var elapsedSeconds: Double { loop.now.since(started) / .seconds(1) }

    private func schedule() {
        let interval = stream.isTerminal ? Self.drawInterval : Self.checkInterval
        timer = loop.setTimer(after: interval) { [unowned self] in
            tick()
            schedule()
        }
    }

    private func tick() {
        var snapshot = source.state()
        snapshot.transfers = running.values.sorted { $0.index < $1.index }.map(\.transfer)
        snapshot.seconds = elapsedSeconds
        // The rate starts at the first new byte.
        if snapshot.newBytes == 0 { rate = TransferRate() }
        rate.add(snapshot.newBytes, at: Int(snapshot.seconds * 1000))
        snapshot.bytesPerSecond = rate.perSecond
        if snapshot.done != lastChange.done || snapshot.bytes != lastChange.bytes {
            lastChange = (snapshot.done, snapshot.bytes, snapshot.seconds)
            waiting = nil
        } else if snapshot.seconds - max(lastChange.seconds, queriedAt) >= Self.patience,
            let oldest = source.oldestRequest()
        {
            queriedAt = snapshot.seconds
            source.requestReason(oldest)
        }
        snapshot.waiting = waiting
        if stream.isTerminal { draw(snapshot) } else { log(snapshot) }
    }

    private func draw(_ snapshot: RunSnapshot) {
        guard !isReserved else {
            guard snapshot.bytes == 0, let waiting else { return clear() }
            return show([ColumnText.shortened(waiting, to: stream.size.columns - 1)])
        }
        let size = stream.size
        show(ProgressText(columns: size.columns, rows: size.rows, hasColor: stream.hasColor).lines(snapshot))
    }

    private func show(_ lines: [String]) {
        guard !lines.isEmpty || shownLines > 0 else { return }
        stream.write((shownLines > 0 ? erasure : "") + lines.joined(separator: "\n"))
        shownLines = lines.count
    }

    /// Moves the cursor to the start of the first line and erases to the end of the screen.
    private var erasure: String { "\r" + (shownLines > 1 ? "\u{1b}[\(shownLines - 1)A" : "") + "\u{1b}[J" }

    private func log(_ snapshot: RunSnapshot) {
        guard snapshot.seconds >= nextLog else { return }
        logInterval = min(logInterval * 2, Self.mostLogSeconds)
        nextLog = snapshot.seconds + logInterval
        CommandError.writeMessage(ProgressText.plain(snapshot))
    }
}

/// Rate over the last seconds of a run: the slope between the oldest and the newest sample of a window.
struct TransferRate {
    /// Length of the window.
    private static let windowMilliseconds = 5_000
    /// Maximum number of samples: those of the window at the redraw interval, and some more.
    private static let mostSamples = 32

    private struct Sample {
        let milliseconds: Int
        let value: Double
    }

    private var samples: [Sample] = []

    /// Adds the value of a counter. A value below the previous one, as after a restart of a transfer, starts a new window.
    mutating func add(_ value: Double, at milliseconds: Int) {
        if let last = samples.last, value < last.value { samples.removeAll(keepingCapacity: true) }
        samples.append(Sample(milliseconds: milliseconds, value: value))
        let start = milliseconds - Self.windowMilliseconds
        let old = samples.dropLast().prefix { $0.milliseconds < start }.count
        samples.removeFirst(max(old, samples.count - Self.mostSamples))
    }

    /// Increase per second; nil before the second sample.
    var perSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.milliseconds > first.milliseconds else {
            return nil
        }
        return (last.value - first.value) * 1000 / Double(last.milliseconds - first.milliseconds)
    }
}

/// Reason why a request waits, from the broker's answer to `QUERY why`.
enum WaitReason {
    /// Returns one line such as `waiting 24 s: http://h answered 429 or 503`. Nil for a request that does not wait.
    ///
    /// - Parameter idle: time without any progress.
    static func text(_ answer: JSONValue, idle: Double) -> String? {
        guard let state = answer.member("state")?.text, state != "unknown" else { return nil }
        guard let wait = answer.member("waits-for")?.text else {
            guard state == "running" else { return nil }
            return "waiting: no data from the server for \(Int(idle)) s"
        }
        let origin = answer.member("origin")?.text ?? "its origin"
        switch wait {
        case "cool-down": return "waiting\(pause(answer, "cooling-ms")): \(origin) answered 429 or 503"
        case "retry": return "waiting\(pause(answer, "retry-in-ms")): an attempt failed, and is repeated"
        case "spacing": return "waiting\(pause(answer, "starts-in-ms")): spacing of transfers from \(origin)"
        case "origin":
            guard let running = answer.number("running"),
                let limit = answer.number("limit")
            else { break }
            guard running < limit else { return "waiting: \(running) of \(limit) transfers from \(origin) run" }
            return "waiting: \(running) of \(limit) transfers run, and the last is reserved for class high"
        default: break
        }
        return "waiting: " + (answer.member("reason")?.text ?? wait)
    }

    /// The remaining time in whole seconds, with a leading space; empty if it is unknown.
    private static func pause(_ answer: JSONValue, _ member: String) -> String {
        guard let milliseconds = answer.member(member)?.text.flatMap({ Int($0) }) else { return "" }
        return " \((max(0, milliseconds) + 999) / 1000) s"
    }
}
