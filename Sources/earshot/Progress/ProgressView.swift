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
        let oldest: () -> RequestID?
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
    private var shown = 0

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
        let idle = elapsed - lastChange.seconds
        guard idle >= Self.patience, let answer = JSONValue(json) else { return }
        waiting = WaitReason.text(answer, idle: idle).map(TerminalText.escaped)
    }

    // MARK: Output

    /// Erases the progress before other output.
    func clear() {
        guard shown > 0 else { return }
        stream.write(erasure)
        shown = 0
    }

    /// Ends the progress.
    func end() {
        clear()
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    private var elapsed: Double { loop.now.since(started) / .seconds(1) }

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
        snapshot.seconds = elapsed
        // The rate starts at the first new byte.
        if snapshot.newBytes == 0 { rate = TransferRate() }
        rate.add(snapshot.newBytes, at: Int(snapshot.seconds * 1000))
        snapshot.bytesPerSecond = rate.perSecond
        if snapshot.done != lastChange.done || snapshot.bytes != lastChange.bytes {
            lastChange = (snapshot.done, snapshot.bytes, snapshot.seconds)
            waiting = nil
        } else if snapshot.seconds - max(lastChange.seconds, queriedAt) >= Self.patience, let oldest = source.oldest() {
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
        guard !lines.isEmpty || shown > 0 else { return }
        stream.write((shown > 0 ? erasure : "") + lines.joined(separator: "\n"))
        shown = lines.count
    }

    /// Moves the cursor to the start of the first line and erases to the end of the screen.
    private var erasure: String { "\r" + (shown > 1 ? "\u{1b}[\(shown - 1)A" : "") + "\u{1b}[J" }

    private func log(_ snapshot: RunSnapshot) {
        guard snapshot.seconds >= nextLog else { return }
        logInterval = min(logInterval * 2, Self.mostLogSeconds)
        nextLog = snapshot.seconds + logInterval
        CommandError.writeMessage(ProgressText.plain(snapshot))
    }
}
