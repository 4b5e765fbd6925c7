internal import EarshotLoop
internal import Glibc

/// Buffered lines for standard output. One system call writes many lines.
struct LineOutput {
    /// Buffer size that triggers a flush, in bytes.
    private static let flushThresholdBytes = 64 << 10

    private let output: StandardOutput
    private var bufferedLines: [UInt8] = []
    /// Error that stopped the output. A line may be incomplete; no further line is written.
    private(set) var writeError: CommandError?

    /// - Parameter interrupt: descriptor that aborts a blocked write when it is readable; -1 for none.
    init(interrupt: Int32 = -1) {
        output = StandardOutput(interrupt: interrupt)
    }

    var isEmpty: Bool { bufferedLines.isEmpty }

    /// Buffers a line. Flushes if the buffer is full.
    mutating func add(_ line: [UInt8]) {
        bufferedLines += line
        if bufferedLines.count >= Self.flushThresholdBytes { flush() }
    }

    /// Writes the buffered lines.
    mutating func flush() {
        guard !bufferedLines.isEmpty else { return }
        if writeError == nil {
            do throws(CommandError) { try output.write(bufferedLines) } catch { writeError = error }
        }
        bufferedLines.removeAll(keepingCapacity: true)
    }

    /// Writes the buffered lines.
    ///
    /// - Throws: the first error of the output.
    mutating func finish() throws(CommandError) {
        flush()
        if let writeError { throw writeError }
    }
}

/// Standard output of a command. All output goes through this type, so that each failed write is an error.
struct StandardOutput {
    private let output: Output

    /// - Parameter interrupt: descriptor that aborts a blocked write when it is readable; -1 for none.
    init(interrupt: Int32 = -1) {
        output = Output(STDOUT_FILENO, interruptDescriptor: interrupt)
    }

    /// Writes all of `bytes`.
    ///
    /// - Throws: `CommandError` with the exit status of the command.
    func write(_ bytes: [UInt8]) throws(CommandError) {
        switch output.write(bytes) {
        case .allWritten: return
        case .interrupted: throw CommandError(.interrupted)
        // A closed pipe, as after head(1), needs no message.
        case .readerClosed: throw CommandError(.cannotWrite)
        case .sourceTooShort:
            throw CommandError(.cannotWrite, "cannot write to standard output: the source was truncated")
        case .failed(let number): throw CommandError(.cannotWrite, Self.errnoMessage(number))
        }
    }

    /// Writes a line.
    func write(line: String) throws(CommandError) { try write(Array((line + "\n").utf8)) }

    /// Message for an errno value.
    static func errnoMessage(_ number: Int32) -> String {
        let cause = unsafe number == EBADF ? "it is closed" : String(cString: strerror(number))
        return "cannot write to standard output: \(cause)"
    }
}
