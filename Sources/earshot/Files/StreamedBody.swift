internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Writer that streams a growing body to standard output or into a new file.
///
/// It opens the spool file at the first PROGRESS that names it. The open file stays readable after a rename, and
/// contains all reported bytes. Another generation is a different body. A new file then starts again, but standard
/// output cannot be undone.
///
/// A body that the broker sends is in a file of this process already. It is not copied to a new file, because the
/// caller can name it at the end.
final class StreamedBody {
    private enum Target {
        /// Standard output, and whether it is a terminal to which no binary body may go.
        case standardOutput(Output, isGuarded: Bool)
        /// Destination path, and the file after the first write.
        case file(String, NewFile?)
    }

    private var target: Target
    private var descriptor: Int32 = -1
    private var generation: Generation?
    /// Number of bytes written.
    private(set) var writtenBytes = 0

    /// Streams to standard output.
    init(_ output: Output, isGuarded: Bool = false) {
        target = .standardOutput(output, isGuarded: isGuarded)
    }

    /// Streams into a new file for `path`, created with the first bytes.
    init(newFileFor path: String) {
        target = .file(path, nil)
    }

    deinit { closeSource() }

    /// Writes the bytes that have arrived. Skips a missing spool file, because a later message has its new name.
    func progressed(_ progress: Progress) throws(OutputFailure) {
        guard let path = progress.filePath, let generation = progress.generation else { return }
        try open(path, generation)
        guard descriptor >= 0 else { return }
        if case .file = target, BodyFile.isReceivedFile(path) { return }
        try write(upTo: progress.receivedBytes)
    }

    /// Writes the rest of the complete body, and names a file.
    ///
    /// - Parameter modified: time of the file, in seconds since 1970; nil for the present.
    /// - Returns: false if nothing was written and the body must be written at once.
    func finish(_ response: Terminal.Response, modified: Int64? = nil) throws(OutputFailure) -> Bool {
        // The last close of a deleted file blocks until the kernel has freed its blocks. The broker should be last.
        defer { closeSource() }
        guard writtenBytes > 0 else { return false }
        switch target {
        case .standardOutput:
            guard response.generation == generation else { throw Self.fileChangedFailure }
            try write(upTo: response.bodyByteCount)
        case .file(let path, let file):
            guard response.generation == generation, let file else {
                restartFile(path)
                return false
            }
            try copyBytes(upTo: response.bodyByteCount, file.output, path)
            if let modified { file.setTime(modified) }
            try file.commit()
        }
        return true
    }

    private func open(_ path: String, _ generation: Generation) throws(OutputFailure) {
        if generation == self.generation, descriptor >= 0 { return }
        if writtenBytes > 0 {
            guard case .file(let path, _) = target else { throw Self.fileChangedFailure }
            restartFile(path)
        }
        closeSource()
        self.generation = generation
        descriptor = BodyFile.open(path)
    }

    /// Discards the new file, whose content belongs to another body.
    private func restartFile(_ path: String) {
        closeSource()
        generation = nil
        writtenBytes = 0
        target = .file(path, nil)
    }

    private func closeSource() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    private func write(upTo end: Int) throws(OutputFailure) {
        guard end > writtenBytes else { return }
        switch target {
        case .standardOutput(let output, let isGuarded):
            if isGuarded, BinaryBody.isBinary(BinaryBody.firstBytes(of: descriptor, at: writtenBytes)) {
                throw BinaryBody.terminalRefusal
            }
            try copyBytes(upTo: end, output, nil)
        case .file(let path, let file):
            let file = if let file { file } else { try NewFile(for: path) }
            target = .file(path, file)
            try copyBytes(upTo: end, file.output, path)
        }
    }

    private func copyBytes(upTo end: Int, _ output: Output, _ path: String?) throws(OutputFailure) {
        let outcome = output.copy(from: descriptor, length: end - writtenBytes)
        writtenBytes = end
        try OutputFailure.throwIfFailed(outcome, path)
    }

    private static let fileChangedFailure = OutputFailure.cannotWrite(
        "the transfer started over after a part was written, which cannot be undone; fetch it again, or use -o FILE")
}
