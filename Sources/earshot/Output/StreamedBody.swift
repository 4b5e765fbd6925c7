internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// A body that is written while it arrives, to standard output or into a new file.
///
/// Its spool file is opened at the first PROGRESS that names it, and whatever its name becomes stays readable: bytes
/// that were told of are there. Another generation is another body: a new file begins again, but what was written to
/// standard output cannot be taken back.
final class StreamedBody {
    private enum Target {
        case standardOutput(Output)
        /// The path that the new file is for, and the file once there is something to write.
        case file(String, NewFile?)
    }

    private var target: Target
    private var descriptor: Int32 = -1
    private var generation: Generation?
    /// Bytes that were written.
    private(set) var written = 0

    /// To standard output.
    init(_ output: Output) {
        target = .standardOutput(output)
    }

    /// Into a new file for `path`; nothing is made before a body grows in the spool.
    init(newFileFor path: String) {
        target = .file(path, nil)
    }

    deinit { closeSource() }

    /// Writes what has come; nothing where the file is not there any more, since another message tells of its next
    /// name.
    func progressed(_ progress: Progress) throws(Destination.Failure) {
        guard let path = progress.file, let generation = progress.generation else { return }
        try open(path, generation)
        guard descriptor >= 0 else { return }
        try write(to: progress.received)
    }

    /// Writes what is missing of the whole body, and gives a file its name.
    ///
    /// - Returns: false if nothing is written: the body has to be written as one that came whole.
    func ended(_ response: Terminal.Response) throws(Destination.Failure) -> Bool {
        // Who closes a file without a name last waits until its bytes are given back: be that the broker.
        defer { closeSource() }
        guard written > 0 else { return false }
        switch target {
        case .standardOutput:
            guard response.generation == generation else { throw Self.changed }
            try write(to: response.length)
        case .file(let path, let file):
            guard response.generation == generation, let file else {
                beginAnew(path)
                return false
            }
            try copy(to: response.length, file.output, path)
            try file.commit()
        }
        return true
    }

    private func open(_ path: String, _ generation: Generation) throws(Destination.Failure) {
        if generation == self.generation, descriptor >= 0 { return }
        if written > 0 {
            guard case .file(let path, _) = target else { throw Self.changed }
            beginAnew(path)
        }
        closeSource()
        self.generation = generation
        descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    }

    /// Drops the new file, as what is in it is of another body.
    private func beginAnew(_ path: String) {
        closeSource()
        generation = nil
        written = 0
        target = .file(path, nil)
    }

    private func closeSource() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    private func write(to end: Int) throws(Destination.Failure) {
        guard end > written else { return }
        switch target {
        case .standardOutput(let output): try copy(to: end, output, "the output")
        case .file(let path, let file):
            let file = if let file { file } else { try NewFile(for: path) }
            target = .file(path, file)
            try copy(to: end, file.output, path)
        }
    }

    private func copy(to end: Int, _ output: Output, _ name: String) throws(Destination.Failure) {
        let outcome = output.copy(from: descriptor, length: end - written)
        written = end
        try Destination.check(outcome, name)
    }

    private static let changed = Destination.Failure.cannotWrite(
        "the body changed at its origin after a part of it was written")
}
