internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// A body that is written to an output while it arrives.
///
/// The file is opened at the first PROGRESS that names it, and whatever its name becomes stays readable: bytes that were
/// told of are there. Another generation is another body: what was written of the first one cannot be taken back.
final class StreamedBody {
    private let output: Output
    private var descriptor: Int32 = -1
    private var generation: Generation?
    /// Bytes that were written.
    private(set) var written = 0

    init(_ output: Output) {
        self.output = output
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Writes what has come; nothing where the file is not there any more, since another message tells of its next name.
    func progressed(_ progress: Progress) throws(Destination.Failure) {
        guard let path = progress.file, let generation = progress.generation else { return }
        try open(path, generation)
        guard descriptor >= 0 else { return }
        try write(to: progress.received)
    }

    /// Writes what is missing of the whole body.
    func ended(_ response: Terminal.Response) throws(Destination.Failure) {
        guard written > 0 else { return }
        guard response.generation == generation else { throw Self.changed }
        try write(to: response.length)
    }

    private func open(_ path: String, _ generation: Generation) throws(Destination.Failure) {
        if generation == self.generation, descriptor >= 0 { return }
        guard written == 0 else { throw Self.changed }
        if descriptor >= 0 { close(descriptor) }
        self.generation = generation
        descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    }

    private func write(to end: Int) throws(Destination.Failure) {
        guard end > written else { return }
        let outcome = output.copy(from: descriptor, length: end - written)
        written = end
        try Destination.check(outcome, "the output")
    }

    private static let changed = Destination.Failure.cannotWrite(
        "the body changed at its origin after a part of it was written")
}
