internal import EarshotClient
internal import Glibc

/// Standard error as the output of progress: a terminal or a log.
struct ErrorStream {
    /// Whether it is a terminal that can move its cursor.
    let isTerminal: Bool
    let hasColor: Bool

    init() {
        let kind = Environment.value("TERM") ?? ""
        isTerminal = isatty(STDERR_FILENO) == 1 && !kind.isEmpty && kind != "dumb"
        hasColor = isTerminal && (Environment.value("NO_COLOR") ?? "").isEmpty
    }

    /// Columns and rows of the terminal; 80 and 24 for a terminal that does not know them.
    var terminalSize: (columns: Int, rows: Int) {
        var size = winsize()
        guard unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0 else { return (80, 24) }
        return (size.ws_col > 0 ? Int(size.ws_col) : 80, size.ws_row > 0 ? Int(size.ws_row) : 24)
    }

    func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
