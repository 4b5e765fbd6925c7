internal import CLinux
internal import Glibc

/// Blocking writer of bytes to a descriptor. Contents of files are copied inside the kernel where possible.
///
/// A write may block indefinitely if the reader of a pipe stops. A second descriptor, such as that of a
/// ``SignalSource``, interrupts the wait when it becomes readable.
public struct Output: Sendable {
    /// Result of a write.
    public enum Outcome: Equatable, Sendable {
        case done
        /// The reader has closed the pipe or socket.
        case broken
        /// The interrupting descriptor became readable; some bytes may have been written.
        case interrupted
        /// The source ended before `length` bytes were copied.
        case short
        /// The `errno` value of the write.
        case failed(Int32)
    }

    /// Bytes that a pipe accepts whenever it is writable, pipe(7).
    private static let pipeBytes = 4096
    /// Maximum number of bytes copied per call, so that a signal is noticed soon.
    private static let copyBytes = 16 << 20

    private let descriptor: Int32
    private let interrupt: Int32
    private let isFile: Bool
    private let isPipe: Bool

    /// - Parameters:
    ///   - descriptor: Descriptor open for writing; the caller owns it.
    ///   - interrupt: Descriptor that interrupts a write when readable; -1 for none.
    public init(_ descriptor: Int32, interrupt: Int32 = -1) {
        self.descriptor = descriptor
        self.interrupt = interrupt
        var status = stat()
        let mode = unsafe fstat(descriptor, &status) == 0 ? status.st_mode & S_IFMT : 0
        isFile = mode == S_IFREG
        isPipe = mode == S_IFIFO
    }

    /// - Parameter descriptor: Regular file open for writing; the caller owns it.
    public init(file descriptor: Int32) {
        self.descriptor = descriptor
        interrupt = -1
        isFile = true
        isPipe = false
    }

    /// Writes all of `bytes`.
    public func write(_ bytes: [UInt8]) -> Outcome {
        var written = 0
        while written < bytes.count {
            let most = isFile ? bytes.count : Output.pipeBytes
            let count = unsafe bytes.withUnsafeBytes { buffer in
                let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[written...].prefix(most))
                return attempt { unsafe Glibc.write(descriptor, rest.baseAddress, rest.count) }
            }
            switch count {
            case .success(let count): written += count
            case .failure(let end): return end.outcome
            }
        }
        return .done
    }

    /// Copies `length` bytes from the current offset of `source`, a file.
    public func copy(from source: Int32, length: Int) -> Outcome {
        var rest = length
        var way = isFile ? Way.range : isPipe ? .splice : .send
        while rest > 0 {
            switch copySome(from: source, min(rest, Output.copyBytes), way) {
            case .success(0): return .short
            case .success(let count): rest -= count
            case .failure(let end):
                // Not supported: another file system, a device without support, or a file opened with O_APPEND, for
                // which copy_file_range(2) returns EBADF.
                guard case .failed(let number) = end.outcome, let next = way.next,
                    [EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EBADF].contains(number)
                else { return end.outcome }
                way = next
            }
        }
        return .done
    }

    /// Copy methods, ordered from the fastest to the most widely supported.
    private enum Way {
        case range
        case splice
        case send
        case memory

        var next: Way? {
            switch self {
            case .range, .splice: .send
            case .send: .memory
            case .memory: nil
            }
        }
    }

    private func copySome(from source: Int32, _ count: Int, _ way: Way) -> Result<Int, End> {
        switch way {
        case .range: return attempt { linux_copy_file_range(source, descriptor, UInt(count)) }
        case .splice: return attempt { linux_splice_without_waiting(source, descriptor, UInt(count)) }
        case .send: return attempt { linux_send_file(source, descriptor, UInt(count)) }
        case .memory:
            var bytes = [UInt8](repeating: 0, count: min(count, Output.pipeBytes))
            let got = unsafe read(source, &bytes, bytes.count)
            guard got >= 0 else { return .failure(End(.failed(errno))) }
            let outcome = write(Array(bytes[..<got]))
            return outcome == .done ? .success(got) : .failure(End(outcome))
        }
    }

    private struct End: Error {
        let outcome: Outcome

        init(_ outcome: Outcome) {
            self.outcome = outcome
        }
    }

    /// Waits until the descriptor is writable and makes the call. Repeats while the call is interrupted or would block.
    private func attempt(_ call: () -> Int) -> Result<Int, End> {
        while true {
            if let end = waitForRoom() { return .failure(End(end)) }
            let count = call()
            if count >= 0 { return .success(count) }
            switch errno {
            case EINTR, EAGAIN: continue
            case EPIPE: return .failure(End(.broken))
            case let number: return .failure(End(.failed(number)))
            }
        }
    }

    /// Waits until the descriptor is writable. Returns nil then, otherwise the reason to stop.
    private func waitForRoom() -> Outcome? {
        guard !isFile else { return nil }
        var entries = [
            pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0),
            pollfd(fd: interrupt, events: Int16(POLLIN), revents: 0),
        ]
        while unsafe poll(&entries, 2, -1) < 0 {
            let number = errno
            guard number == EINTR else { return .failed(number) }
        }
        return entries[1].revents == 0 ? nil : .interrupted
    }
}
