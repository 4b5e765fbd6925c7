internal import EarshotLoop
internal import Glibc

/// Progress line on a terminal. There is none if standard error is no terminal.
final class ProgressBar {
    /// Redraw interval.
    private static let interval = Duration.milliseconds(200)

    private let loop: EventLoop
    private let started: LoopTime
    private let read: () -> (total: Int, tally: Tally, bytesUnderWay: Double)
    private var timer: TimerID?
    private var isShown = false

    /// Fails if standard error is no terminal.
    init?(_ loop: EventLoop, read: @escaping () -> (total: Int, tally: Tally, bytesUnderWay: Double)) {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        self.loop = loop
        self.read = read
        started = loop.now
        schedule()
    }

    deinit { clear() }

    /// Erases the line before other output.
    func clear() {
        guard isShown else { return }
        isShown = false
        ProgressBar.write("\r\u{1b}[K")
    }

    /// Stops redrawing.
    func end() {
        clear()
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    private func schedule() {
        timer = loop.setTimer(after: ProgressBar.interval) { [unowned self] in
            draw()
            schedule()
        }
    }

    private func draw() {
        let (total, tally, underWay) = read()
        let done = tally.succeeded + tally.failed
        let seconds = max(loop.now.since(started) / .seconds(1), 0.001)
        let bytes = Double(tally.bytes) + underWay
        var line = "\(done)/\(total)  \(ByteSize.text(bytes))"
        line += "  \(ByteSize.text(bytes / seconds))/s"
        if tally.cached > 0 { line += "  \(tally.cached) cached" }
        if tally.failed > 0 { line += "  \(tally.failed) failed" }
        let width = ProgressBar.width
        let room = width - line.utf8.count - 5
        if room >= 10, total > 1 {
            let filled = min(room, room * done / total)
            line =
                "[" + String(repeating: "=", count: filled) + String(repeating: " ", count: room - filled) + "]  "
                + line
        }
        isShown = true
        ProgressBar.write("\r\u{1b}[K" + line.prefix(width - 1))
    }

    private static var width: Int {
        var size = winsize()
        guard unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 20 else { return 80 }
        return Int(size.ws_col)
    }

    private static func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
