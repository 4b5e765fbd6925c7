internal import EarshotLoop
internal import Glibc

/// Lines for standard output that are written together: a system call for each costs more than what it tells.
struct LineOutput {
    /// Bytes that are not kept for longer.
    private static let mostBytes = 64 << 10

    private let output: Output
    private var lines: [UInt8] = []
    /// What kept lines from being written; then a part of one may have been, and nothing comes behind it.
    private(set) var obstacle: Output.Outcome?

    /// - Parameter interrupt: a descriptor that is readable when a write is to be given up.
    init(interrupt: Int32) {
        output = Output(STDOUT_FILENO, interrupt: interrupt)
    }

    /// Keeps a line for ``flush()``, which is also done when there is much.
    mutating func add(_ line: [UInt8]) {
        lines += line
        if lines.count >= Self.mostBytes { flush() }
    }

    /// Writes what was kept.
    mutating func flush() {
        guard !lines.isEmpty else { return }
        if obstacle == nil {
            let outcome = output.write(lines)
            if outcome != .done { obstacle = outcome }
        }
        lines.removeAll(keepingCapacity: true)
    }
}
