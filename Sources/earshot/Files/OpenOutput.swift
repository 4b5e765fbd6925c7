internal import EarshotLoop
internal import Glibc

/// Output to a file that is opened for writing, or to an open descriptor of this process.
final class OpenOutput {
    /// Time between attempts to open a named pipe without a reader, in milliseconds.
    private static let openRetryMilliseconds: Int32 = 50

    let output: Output
    /// Path of a regular file; nil for other outputs.
    let path: String?
    /// Whether the output is a terminal.
    let isTerminal: Bool
    /// Descriptor that this object closes; -1 for none.
    private let descriptor: Int32

    /// Uses an open descriptor, which stays open.
    init(_ open: Int32, interrupt: Int32) {
        descriptor = -1
        path = nil
        output = Output(open, interruptDescriptor: interrupt)
        isTerminal = isatty(open) == 1
    }

    /// Opens a file for writing. A regular file is created or truncated. A named pipe is opened once it has a reader.
    ///
    /// - Parameters:
    ///   - path: path for messages.
    ///   - target: kind of the file that `path` names.
    ///   - interrupt: descriptor that aborts a blocked open or write when it is readable; -1 for none.
    ///   - directoryStep: next step if the path is that of a directory.
    init(
        _ path: String, as target: OutputPath, interrupt: Int32, directoryStep: String = SystemCause.directoryStep
    ) throws(OutputFailure) {
        if case .file = target { self.path = path } else { self.path = nil }
        let opened: Int32
        switch target {
        case .descriptor(let number):
            guard fcntl(number, F_GETFD) >= 0 else { throw OutputFailure.systemFailure("open", path) }
            descriptor = -1
            opened = number
        case .file(let file):
            descriptor = try OutputEntry(file, given: path).open(O_WRONLY | O_CREAT | O_TRUNC, mode: 0o666)
            opened = descriptor
        case .specialFile(let file):
            descriptor = try Self.openExisting(OutputEntry(file, given: path), interrupt: interrupt)
            opened = descriptor
        }
        let number = errno
        output = Output(opened, interruptDescriptor: interrupt)
        isTerminal = isatty(opened) == 1
        errno = number
        guard opened >= 0 else { throw OutputFailure.systemFailure("open", path, directoryStep: directoryStep) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Opens a file that is not replaced; -1 on failure, with the reason in `errno`.
    private static func openExisting(_ entry: OutputEntry, interrupt: Int32) throws(OutputFailure) -> Int32 {
        let kind = try entry.fileStatus(opened: true).map { $0.st_mode & S_IFMT }
        // Without a reader, a blocking open of a named pipe would not notice the interrupt.
        let flags = kind == S_IFIFO ? O_NONBLOCK : kind == S_IFREG ? O_APPEND : 0
        while true {
            let descriptor = try entry.open(O_WRONLY | O_NOCTTY | flags)
            guard descriptor < 0, kind == S_IFIFO, errno == ENXIO else { return descriptor }
            var polled = pollfd(fd: interrupt, events: Int16(POLLIN), revents: 0)
            if unsafe poll(&polled, 1, openRetryMilliseconds) > 0 { throw .interrupted }
        }
    }
}
