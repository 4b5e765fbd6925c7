internal import EarshotLoop
internal import Glibc

/// Standard output of a command. All output goes through this type, so that each failed write is an error.
struct StandardOutput {
    private let output: Output

    /// - Parameter interrupt: descriptor that aborts a blocked write when it is readable; -1 for none.
    init(interrupt: Int32 = -1) {
        output = Output(STDOUT_FILENO, interrupt: interrupt)
    }

    /// Writes all of `bytes`.
    ///
    /// - Throws: `CommandError` with the exit status of the command.
    func write(_ bytes: [UInt8]) throws(CommandError) {
        switch output.write(bytes) {
        case .done: return
        case .interrupted: throw CommandError(.interrupted)
        // A closed pipe, as after head(1), needs no message.
        case .broken: throw CommandError(.cannotWrite)
        case .short: throw CommandError(.cannotWrite, "cannot write to standard output: the source was truncated")
        case .failed(let number): throw CommandError(.cannotWrite, Self.sentence(number))
        }
    }

    /// Writes a line.
    func write(line: String) throws(CommandError) { try write(Array((line + "\n").utf8)) }

    /// Message for an errno value.
    static func sentence(_ number: Int32) -> String {
        let cause = unsafe number == EBADF ? "it is closed" : String(cString: strerror(number))
        return "cannot write to standard output: \(cause)"
    }
}
