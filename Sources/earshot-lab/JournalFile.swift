internal import EarshotLoop
internal import Glibc

/// What a client has seen, a line for each fact, written with one call before anything follows from it: what a killed
/// client has written is whole but for its last line.
///
/// A line is the time on the monotonic clock in milliseconds, a verb, and words with one space between.
final class JournalFile {
    private let descriptor: Int32
    private let output: Output

    /// Begins a new file.
    ///
    /// - Throws: `SystemError` when it cannot be written.
    init(_ path: String) throws(SystemError) {
        descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw SystemError("open a journal", number: errno) }
        output = Output(descriptor)
    }

    deinit { close(descriptor) }

    /// Adds a fact. A journal that cannot be written is of no use: the process ends.
    func note(_ verb: String, _ words: String...) {
        let time = LoopTime.read().nanoseconds / 1_000_000
        let line = ([String(time), verb] + words).joined(separator: " ") + "\n"
        guard output.write(Array(line.utf8)) == .done else { exit(EXIT_FAILURE) }
    }
}
