internal import EarshotLoop
internal import Glibc

/// Terminal of `earshot top`: its alternate screen, without echo and line editing.
///
/// ``leave()`` restores it. The owner calls it on each way out.
final class TopScreen {
    private let output: StandardOutput
    /// Whether attributes such as bold are permitted.
    private let hasStyles: Bool
    /// Settings of the terminal before ``enter()``; nil if standard input is no terminal.
    private var savedTerminalSettings: termios?
    private var isEntered = false

    /// - Parameter interrupt: descriptor that aborts a blocked write when it is readable.
    init(interrupt: Int32) {
        output = StandardOutput(interrupt: interrupt)
        hasStyles = unsafe (getenv("NO_COLOR").map { unsafe $0.pointee == 0 } ?? true)
    }

    deinit { leave() }

    /// Whether keys can be read.
    var canReadKeys: Bool { savedTerminalSettings != nil }

    /// Whether standard output can show a screen.
    static var isSupported: Bool {
        guard isatty(STDOUT_FILENO) == 1, let name = unsafe getenv("TERM") else { return false }
        return unsafe strcmp(name, "dumb") != 0 && name.pointee != 0
    }

    func enter() throws(CommandError) {
        var present = termios()
        if savedTerminalSettings == nil, isatty(STDIN_FILENO) == 1, unsafe tcgetattr(STDIN_FILENO, &present) == 0 {
            savedTerminalSettings = present
        }
        if var raw = savedTerminalSettings {
            // Signals stay: Ctrl-C and Ctrl-Z arrive as signals.
            raw.c_lflag &= ~UInt32(ICANON | ECHO)
            _ = unsafe tcsetattr(STDIN_FILENO, TCSADRAIN, &raw)
        }
        isEntered = true
        try write("\u{1b}[?1049h\u{1b}[?25l")
    }

    /// Restores the terminal. Harmless if that has happened.
    func leave() {
        guard isEntered else { return }
        isEntered = false
        // Without the interrupt descriptor, because a signal may be pending.
        _ = Output(STDOUT_FILENO, interruptDescriptor: -1).write(Array("\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l".utf8))
        if var savedTerminalSettings { _ = unsafe tcsetattr(STDIN_FILENO, TCSADRAIN, &savedTerminalSettings) }
    }

    /// Columns and rows; 80 and 24 if the terminal does not report them.
    var terminalSize: (columns: Int, rows: Int) {
        var size = winsize()
        guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    func draw(_ lines: [TopView.Line]) throws(CommandError) {
        guard isEntered else { return }
        let body = lines.map { line in
            let begin =
                switch line.style {
                case .plain: ""
                case .heading: "\u{1b}[1m"
                case .selected: "\u{1b}[7m"
                }
            // The erasure precedes the text: behind text that fills the row it would remove the last column.
            return "\u{1b}[K" + (hasStyles && !begin.isEmpty ? begin + line.text + "\u{1b}[0m" : line.text)
        }
        try write("\u{1b}[H" + body.joined(separator: "\r\n") + "\u{1b}[0m")
    }

    /// Reads the pending keys; nil at the end of the input.
    func readKeys() -> [TopKey]? {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = unsafe read(STDIN_FILENO, &bytes, bytes.count)
        if count > 0 { return TopKey.keys(in: Array(bytes.prefix(count))) }
        return count < 0 && (errno == EINTR || errno == EAGAIN) ? [] : nil
    }

    private func write(_ text: String) throws(CommandError) { try output.write(Array(text.utf8)) }
}

/// Key of a terminal.
enum TopKey: Equatable {
    case character(Character)
    case up
    case down
    case enter
    case backspace
    case escape

    /// Decodes the bytes of one read. Unknown sequences are dropped.
    static func keys(in bytes: [UInt8]) -> [TopKey] {
        var keys: [TopKey] = []
        var rest = bytes[...]
        while let byte = rest.popFirst() {
            switch byte {
            case 0x0a, 0x0d: keys.append(.enter)
            case 0x08, 0x7f: keys.append(.backspace)
            case 0x1b:
                guard let introducer = rest.first, introducer == UInt8(ascii: "[") || introducer == UInt8(ascii: "O")
                else {
                    keys.append(.escape)
                    continue
                }
                rest = rest.dropFirst()
                // Parameters end with the first byte of 40 to 7E (ECMA-48).
                rest = rest.drop { !(0x40...0x7e).contains($0) }
                switch rest.popFirst() {
                case UInt8(ascii: "A"): keys.append(.up)
                case UInt8(ascii: "B"): keys.append(.down)
                default: break
                }
            case 0x20..<0x7f: keys.append(.character(Character(Unicode.Scalar(byte))))
            default: break
            }
        }
        return keys
    }
}
