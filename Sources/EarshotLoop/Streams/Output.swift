internal import CLinux
internal import Glibc

/// Blocking writer of bytes to a descriptor. Contents of files are copied inside the kernel where possible.
///
/// A write may block indefinitely if the reader of a pipe stops. A second descriptor, such as that of a
/// ``SignalSource``, interrupts the wait when it becomes readable.
public struct Output: Sendable {
    /// Result of a write.
    public enum Outcome: Equatable, Sendable {
        case allWritten
        /// The reader has closed the pipe or socket.
        case readerClosed
        /// The interrupting descriptor became readable; some bytes may have been written.
        case interrupted
        /// The source ended before `length` bytes were copied.
        case sourceTooShort
        /// The `errno` value of the write.
        case failed(Int32)
    }

    /// Bytes that a pipe accepts whenever it is writable, pipe(7).
    private static let safePipeWriteBytes = 4096
    /// Maximum number of bytes copied per call, so that a signal is noticed soon.
    private static let maximumBytesPerCopyCall = 16 << 20

    private let descriptor: Int32
    private let interruptDescriptor: Int32
    private let isFile: Bool
    private let isPipe: Bool

    /// - Parameters:
    ///   - descriptor: Descriptor open for writing; the caller owns it.
    ///   - interruptDescriptor: Descriptor that interrupts a write when readable; -1 for none.
    public init(_ descriptor: Int32, interruptDescriptor: Int32 = -1) {
        self.descriptor = descriptor
        self.interruptDescriptor = interruptDescriptor
        var status = stat()
        let mode = unsafe fstat(descriptor, &status) == 0 ? status.st_mode & S_IFMT : 0
        isFile = mode == S_IFREG
        isPipe = mode == S_IFIFO
    }

    /// - Parameter descriptor: Regular file open for writing; the caller owns it.
    public init(file descriptor: Int32) {
        self.descriptor = descriptor
        interruptDescriptor = -1
        isFile = true
        isPipe = false
    }

    /// Writes all of `bytes`.
    public func write(_ bytes: [UInt8]) -> Outcome {
        var written = 0
        while written < bytes.count {
            let maximumBytes = isFile ? bytes.count : Output.safePipeWriteBytes
            let count = unsafe bytes.withUnsafeBytes { buffer in
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[written...].prefix(maximumBytes))
                return callWhenWritable { unsafe Glibc.write(descriptor, rest.baseAddress, rest.count) }
            }
            switch count {
            case .success(let count): written += count
            case .failure(let end): return end.outcome
            }
        }
        return .allWritten
    }

    /// Copies `length` bytes from the current offset of `source`, a file.
    public func copy(from source: Int32, length: Int) -> Outcome {
        var rest = length
        var method = isFile ? CopyMethod.copyFileRange : isPipe ? .splice : .sendfile
        while rest > 0 {
            switch copyChunk(from: source, count: min(rest, Output.maximumBytesPerCopyCall), method: method) {
            case .success(0): return .sourceTooShort
            case .success(let count): rest -= count
            case .failure(let end):
                // Not supported: another file system, a device without support, or a file opened with O_APPEND, for
                // which copy_file_range(2) returns EBADF.
                guard case .failed(let number) = end.outcome, let next = method.nextSlowerMethod,
                    [EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EBADF].contains(number)
                else { return end.outcome }
                method = next
            }
        }
        return .allWritten
    }

    /// Copy methods, ordered from the fastest to the most widely supported.
    private enum CopyMethod {
        case copyFileRange
        case splice
        case sendfile
        case readAndWrite

        var nextSlowerMethod: CopyMethod? {
            switch self {
            case .copyFileRange, .splice: .sendfile
            case .sendfile: .readAndWrite
            case .readAndWrite: nil
            }
        }
    }

    private func copyChunk(from source: Int32, count: Int, method: CopyMethod) -> Result<Int, StopError> {
        switch method {
        case .copyFileRange: return callWhenWritable { linux_copy_file_range(source, descriptor, UInt(count)) }
        case .splice: return callWhenWritable { linux_splice_without_waiting(source, descriptor, UInt(count)) }
        case .sendfile: return callWhenWritable { linux_send_file(source, descriptor, UInt(count)) }
        case .readAndWrite:
            var bytes = [UInt8](repeating: 0, count: min(count, Output.safePipeWriteBytes))
            let got = unsafe read(source, &bytes, bytes.count)
            guard got >= 0 else { return .failure(StopError(.failed(errno))) }
            let outcome = write(Array(bytes[..<got]))
            return outcome == .allWritten ? .success(got) : .failure(StopError(outcome))
        }
    }

    private struct StopError: Error {
        let outcome: Outcome

        init(_ outcome: Outcome) {
            self.outcome = outcome
        }
    }

    /// Waits until the descriptor is writable and makes the call. Repeats while the call is interrupted or would block.
    private func callWhenWritable(_ call: () -> Int) -> Result<Int, StopError> {
        while true {
            if let end = waitUntilWritable() { return .failure(StopError(end)) }
            let count = call()
            if count >= 0 { return .success(count) }
            switch errno {
            case EINTR, EAGAIN: continue
            case EPIPE: return .failure(StopError(.readerClosed))
            case let number: return .failure(StopError(.failed(number)))
            }
        }
    }

    /// Waits until the descriptor is writable. Returns nil then, otherwise the reason to stop.
    private func waitUntilWritable() -> Outcome? {
        guard !isFile else { return nil }
        var entries = [
            pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0),
            pollfd(fd: interruptDescriptor, events: Int16(POLLIN), revents: 0),
        ]
        while unsafe poll(&entries, 2, -1) < 0 {
            let number = errno
            guard number == EINTR else { return .failed(number) }
        }
        return entries[1].revents == 0 ? nil : .interrupted
    }
}

/// Descriptors 0, 1 and 2, which `earshot` and `earshot-web` occupy before they open anything.
public enum StandardStreams {
    /// Opens a placeholder on each of the three descriptors that is closed, so that no socket or file gets its number.
    ///
    /// A program calls it before it opens anything. Reading or writing a placeholder fails with `EBADF`, as if it were
    /// still closed, so lost output is reported as an error.
    public static func openMissingDescriptors() {
        for descriptor in STDIN_FILENO...STDERR_FILENO where fcntl(descriptor, F_GETFD) < 0 {
            // open(2) returns the lowest free number, which is this one.
            _ = unsafe open("/", linux_o_path)
        }
    }
}
