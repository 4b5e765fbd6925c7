internal import EarshotLoop
internal import Glibc

/// Journal of a client: one line per event, written by a single call before anything follows from it. After a kill, at
/// most the last line is incomplete.
///
/// A line consists of the time on the monotonic clock in milliseconds, a verb, and words separated by one space.
final class JournalFile {
    private let descriptor: Int32
    private let output: Output

    /// Creates a new file.
    ///
    /// - Throws: `SystemError` if it cannot be written.
    init(_ path: String) throws(SystemError) {
        descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw SystemError("open a journal", number: errno) }
        output = Output(descriptor)
    }

    deinit { close(descriptor) }

    /// Appends an event. Ends the process if the journal cannot be written, because the run is useless then.
    func note(_ verb: String, _ words: String...) {
        let time = LoopTime.read().nanoseconds / 1_000_000
        let line = ([String(time), verb] + words).joined(separator: " ") + "\n"
        guard output.write(Array(line.utf8)) == .done else { exit(EXIT_FAILURE) }
    }
}
