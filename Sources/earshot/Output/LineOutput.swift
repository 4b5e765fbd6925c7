/// Buffered lines for standard output. One system call writes many lines.
struct LineOutput {
    /// Buffer size that triggers a flush, in bytes.
    private static let mostBytes = 64 << 10

    private let output: StandardOutput
    private var lines: [UInt8] = []
    /// Error that stopped the output. A line may be incomplete; no further line is written.
    private(set) var obstacle: CommandError?

    /// - Parameter interrupt: descriptor that aborts a blocked write when it is readable; -1 for none.
    init(interrupt: Int32 = -1) {
        output = StandardOutput(interrupt: interrupt)
    }

    var isEmpty: Bool { lines.isEmpty }

    /// Buffers a line. Flushes if the buffer is full.
    mutating func add(_ line: [UInt8]) {
        lines += line
        if lines.count >= Self.mostBytes { flush() }
    }

    /// Writes the buffered lines.
    mutating func flush() {
        guard !lines.isEmpty else { return }
        if obstacle == nil {
            do throws(CommandError) { try output.write(lines) } catch { obstacle = error }
        }
        lines.removeAll(keepingCapacity: true)
    }

    /// Writes the buffered lines.
    ///
    /// - Throws: the first error of the output.
    mutating func finish() throws(CommandError) {
        flush()
        if let obstacle { throw obstacle }
    }
}
