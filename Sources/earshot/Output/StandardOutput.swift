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
    /// - Throws: `Complaint` with the exit status of the command.
    func write(_ bytes: [UInt8]) throws(Complaint) {
        switch output.write(bytes) {
        case .done: return
        case .interrupted: throw Complaint(.interrupted)
        // A closed pipe, as after head(1), needs no message.
        case .broken: throw Complaint(.cannotWrite)
        case .short: throw Complaint(.cannotWrite, "cannot write to standard output: the source was truncated")
        case .failed(let number): throw Complaint(.cannotWrite, Self.sentence(number))
        }
    }

    /// Writes a line.
    func write(line: String) throws(Complaint) { try write(Array((line + "\n").utf8)) }

    /// Message for an errno value.
    static func sentence(_ number: Int32) -> String {
        let cause = unsafe number == EBADF ? "it is closed" : String(cString: strerror(number))
        return "cannot write to standard output: \(cause)"
    }
}
