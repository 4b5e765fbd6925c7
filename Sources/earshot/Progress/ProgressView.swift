internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Progress of a run on standard error: lines at the bottom of a terminal, or lines of a log at growing intervals.
///
/// While nothing moves, it queries the broker for the reason why the oldest request waits.
final class ProgressView {
    /// Redraw interval of a terminal.
    private static let drawInterval = Duration.milliseconds(200)
    /// Interval between checks without a terminal.
    private static let logCheckInterval = Duration.seconds(1)
    /// Time without progress until the view queries the broker for the reason, and then the time between two queries.
    /// Longer than the interval of PROGRESS.
    private static let stallTimeoutSeconds = 2.0
    /// Time until the first line of a log; each further interval is twice as long.
    private static let firstLogDelaySeconds = 3.0
    /// Maximum interval between lines of a log.
    private static let maximumLogIntervalSeconds = 60.0

    /// Origin of the values that change outside.
    struct Source {
        /// Known URLs, whether more may arrive, and the counters.
        let snapshot: () -> RunSnapshot
        /// Pending request with the lowest index; nil if there is none.
        let oldestRequest: () -> RequestID?
        /// Queries the broker for the reason why a request waits.
        let requestWaitReason: (RequestID) -> Void
    }

    private struct RunningTransfer {
        let index: Int
        var transfer: RunSnapshot.Transfer
    }

    private let loop: EventLoop
    private let stream = ErrorStream()
    private let source: Source
    /// Whether a body goes to the same terminal. Then only the reason for a wait is shown, before the first byte.
    private let isTerminalUsedByBody: Bool
    private let startTime: LoopTime
    private var running: [RequestID: RunningTransfer] = [:]
    private var transferRate = TransferRate()
    private var waitReason: String?
    /// Number of finished requests and of bytes at the last change, and its time in seconds since the start.
    private var lastProgress = (done: 0, bytes: 0.0, seconds: 0.0)
    private var queriedAt = -ProgressView.stallTimeoutSeconds
    private var nextLog = ProgressView.firstLogDelaySeconds
    private var logInterval = ProgressView.firstLogDelaySeconds
    private var timer: TimerID?
    /// Number of lines on the terminal.
    private var shownLines = 0

    init(_ loop: EventLoop, isReserved: Bool, _ source: Source) {
        self.loop = loop
        self.isTerminalUsedByBody = isReserved
        self.source = source
        startTime = loop.now
        schedule()
    }

    deinit { clear() }

    /// Value of the FETCH option `progress`, in milliseconds.
    var progressMilliseconds: Int { stream.isTerminal ? 200 : 1_000 }

    // MARK: Events

    func progressed(_ progress: Progress, index: Int, url: String) {
        let first = RunSnapshot.Transfer(
            name: SafeFileNames.fileName(ofURL: url), received: progress.receivedBytes,
            isResumable: progress.isResumable)
        running[progress.request, default: RunningTransfer(index: index, transfer: first)].transfer.progressed(
            progress.receivedBytes, of: progress.totalBytes)
    }

    func ended(_ request: RequestID) {
        if !running.isEmpty { running[request] = nil }
    }

    /// Handles the broker's answer to `QUERY why`.
    func handleWhyAnswer(_ json: [UInt8]) {
        let idle = elapsedSeconds - lastProgress.seconds
        guard idle >= Self.stallTimeoutSeconds, let answer = JSONValue(json) else { return }
        waitReason = WaitReason.text(answer, idle: idle).map(TerminalText.escaped)
    }

    // MARK: Output

    /// Erases the progress before other output.
    func clear() {
        guard shownLines > 0 else { return }
        stream.write(eraseSequence)
        shownLines = 0
    }

    /// Ends the progress.
    func end() {
        clear()
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    private var elapsedSeconds: Double { loop.now.since(startTime) / .seconds(1) }

    private func schedule() {
        let interval = stream.isTerminal ? Self.drawInterval : Self.logCheckInterval
        timer = loop.setTimer(after: interval) { [unowned self] in
            tick()
            schedule()
        }
    }

    private func tick() {
        var snapshot = source.snapshot()
        snapshot.transfers = running.values.sorted { $0.index < $1.index }.map(\.transfer)
        snapshot.elapsedSeconds = elapsedSeconds
        // The rate starts at the first new byte.
        if snapshot.newBytes == 0 { transferRate = TransferRate() }
        transferRate.add(snapshot.newBytes, at: Int(snapshot.elapsedSeconds * 1000))
        snapshot.bytesPerSecond = transferRate.perSecond
        if snapshot.finishedCount != lastProgress.done || snapshot.transferredBytes != lastProgress.bytes {
            lastProgress = (snapshot.finishedCount, snapshot.transferredBytes, snapshot.elapsedSeconds)
            waitReason = nil
        } else if snapshot.elapsedSeconds - max(lastProgress.seconds, queriedAt) >= Self.stallTimeoutSeconds,
            let oldest = source.oldestRequest()
        {
            queriedAt = snapshot.elapsedSeconds
            source.requestWaitReason(oldest)
        }
        snapshot.waitReason = waitReason
        if stream.isTerminal { draw(snapshot) } else { log(snapshot) }
    }

    private func draw(_ snapshot: RunSnapshot) {
        guard !isTerminalUsedByBody else {
            guard snapshot.transferredBytes == 0, let waitReason else { return clear() }
            return show([ColumnText.shortened(waitReason, to: stream.terminalSize.columns - 1)])
        }
        let size = stream.terminalSize
        show(ProgressText(columns: size.columns, rows: size.rows, hasColor: stream.hasColor).lines(snapshot))
    }

    private func show(_ lines: [String]) {
        guard !lines.isEmpty || shownLines > 0 else { return }
        stream.write((shownLines > 0 ? eraseSequence : "") + lines.joined(separator: "\n"))
        shownLines = lines.count
    }

    /// Moves the cursor to the start of the first line and erases to the end of the screen.
    private var eraseSequence: String { "\r" + (shownLines > 1 ? "\u{1b}[\(shownLines - 1)A" : "") + "\u{1b}[J" }

    private func log(_ snapshot: RunSnapshot) {
        guard snapshot.elapsedSeconds >= nextLog else { return }
        logInterval = min(logInterval * 2, Self.maximumLogIntervalSeconds)
        nextLog = snapshot.elapsedSeconds + logInterval
        CommandError.writeMessage(ProgressText.logLine(snapshot))
    }
}

/// Rate over the last seconds of a run: the slope between the oldest and the newest sample of a window.
struct TransferRate {
    /// Length of the window.
    private static let windowMilliseconds = 5_000
    /// Maximum number of samples: those of the window at the redraw interval, and some more.
    private static let maximumSamples = 32

    private struct Sample {
        let milliseconds: Int
        let counterValue: Double
    }

    private var samples: [Sample] = []

    /// Adds the value of a counter. A value below the previous one, as after a restart of a transfer, starts a new
    /// window.
    mutating func add(_ value: Double, at milliseconds: Int) {
        if let last = samples.last, value < last.counterValue { samples.removeAll(keepingCapacity: true) }
        samples.append(Sample(milliseconds: milliseconds, counterValue: value))
        let start = milliseconds - Self.windowMilliseconds
        let old = samples.dropLast().prefix { $0.milliseconds < start }.count
        samples.removeFirst(max(old, samples.count - Self.maximumSamples))
    }

    /// Increase per second; nil before the second sample.
    var perSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.milliseconds > first.milliseconds else {
            return nil
        }
        return (last.counterValue - first.counterValue) * 1000 / Double(last.milliseconds - first.milliseconds)
    }
}

/// Reason why a request waits, from the broker's answer to `QUERY why`.
enum WaitReason {
    /// Returns one line such as `waiting 24 s: http://h answered 429 or 503`. Nil for a request that does not wait.
    ///
    /// - Parameter idle: time without any progress, in seconds.
    static func text(_ answer: JSONValue, idle: Double) -> String? {
        guard let state = answer.member("state")?.scalarText, state != "unknown" else { return nil }
        guard let wait = answer.member("waits-for")?.scalarText else {
            guard state == "running" else { return nil }
            return "waiting: no data from the server for \(Int(idle)) s"
        }
        let origin = answer.member("origin")?.scalarText ?? "its origin"
        switch wait {
        case "cool-down": return "waiting\(remainingTimeText(answer, "cooling-ms")): \(origin) answered 429 or 503"
        case "retry": return "waiting\(remainingTimeText(answer, "retry-in-ms")): an attempt failed, and is repeated"
        case "spacing":
            return "waiting\(remainingTimeText(answer, "starts-in-ms")): spacing of transfers from \(origin)"
        case "origin":
            guard let running = answer.integer(ofMember: "running"),
                let limit = answer.integer(ofMember: "limit")
            else { break }
            guard running < limit else { return "waiting: \(running) of \(limit) transfers from \(origin) run" }
            return "waiting: \(running) of \(limit) transfers run, and the last is reserved for class high"
        default: break
        }
        return "waiting: " + (answer.member("reason")?.scalarText ?? wait)
    }

    /// The remaining time in whole seconds, with a leading space; empty if it is unknown.
    private static func remainingTimeText(_ answer: JSONValue, _ member: String) -> String {
        guard let milliseconds = answer.member(member)?.scalarText.flatMap({ Int($0) }) else { return "" }
        return " \((max(0, milliseconds) + 999) / 1000) s"
    }
}
