/// Lines for standard output that are written together, since a system call for each is slow.
struct LineOutput {
    /// Bytes that are not kept for longer.
    private static let mostBytes = 64 << 10

    private let output: StandardOutput
    private var lines: [UInt8] = []
    /// The error that stopped the output. A part of a line may have been written; nothing follows it.
    private(set) var obstacle: Complaint?

    /// - Parameter interrupt: a descriptor that is readable when a write is to be given up; -1 for none.
    init(interrupt: Int32 = -1) {
        output = StandardOutput(interrupt: interrupt)
    }

    /// Keeps a line for ``flush()``, which also happens when many bytes wait.
    mutating func add(_ line: [UInt8]) {
        lines += line
        if lines.count >= Self.mostBytes { flush() }
    }

    /// Writes the lines that wait.
    mutating func flush() {
        guard !lines.isEmpty else { return }
        if obstacle == nil {
            do throws(Complaint) { try output.write(lines) } catch { obstacle = error }
        }
        lines.removeAll(keepingCapacity: true)
    }

    /// Writes the lines that wait.
    ///
    /// - Throws: the first error of the output.
    mutating func finish() throws(Complaint) {
        flush()
        if let obstacle { throw obstacle }
    }
}
