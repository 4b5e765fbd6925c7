internal import EarshotClient
internal import Glibc

/// Standard error as the place of progress: a terminal or a log.
struct ErrorStream {
    /// Whether it is a terminal that can move its cursor.
    let isTerminal: Bool
    let hasColor: Bool

    init() {
        let kind = Environment.value("TERM") ?? ""
        isTerminal = isatty(STDERR_FILENO) == 1 && !kind.isEmpty && kind != "dumb"
        hasColor = isTerminal && (Environment.value("NO_COLOR") ?? "").isEmpty
    }

    /// Columns and rows of the terminal.
    var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 20, size.ws_row > 1 else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
