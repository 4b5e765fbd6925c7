internal import EarshotLoop
internal import Glibc

/// Standard output of a command. Everything a command prints goes through here: output that is not written is an error.
struct StandardOutput {
    private let output: Output

    /// - Parameter interrupt: a descriptor that is readable when a write is to be given up; -1 for none.
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
        // A reader that leaves, such as head(1), knows that it left.
        case .broken: throw Complaint(.cannotWrite)
        case .short: throw Complaint(.cannotWrite, "cannot write to standard output: the source became shorter")
        case .failed(let number): throw Complaint(.cannotWrite, Self.sentence(number))
        }
    }

    /// Writes a line.
    func write(line: String) throws(Complaint) { try write(Array((line + "\n").utf8)) }

    /// The sentence for an errno value.
    static func sentence(_ number: Int32) -> String {
        let cause = unsafe number == EBADF ? "it is closed" : String(cString: strerror(number))
        return "cannot write to standard output: \(cause)"
    }
}
