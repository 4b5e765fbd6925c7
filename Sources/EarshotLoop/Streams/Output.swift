internal import CLinux
internal import Glibc

/// A descriptor that bytes are written to, whole, without going through memory where they come from a file.
///
/// Writing waits, and may wait for ever where the reader of a pipe stands still: a second descriptor that becomes
/// readable, that of a ``SignalSource``, ends such a wait.
public struct Output: Sendable {
    /// How a write ended.
    public enum Outcome: Equatable, Sendable {
        case done
        /// Nobody reads any more.
        case broken
        /// The interrupting descriptor became readable; some bytes may have been written.
        case interrupted
        /// The source ended before the bytes were all there.
        case short
        /// The `errno` value of the write.
        case failed(Int32)
    }

    /// Bytes that go into a pipe that has any room at all, pipe(7).
    private static let pipeBytes = 4096
    /// Bytes copied by one call, so that a signal does not wait long.
    private static let copyBytes = 16 << 20

    private let descriptor: Int32
    private let interrupt: Int32
    private let isFile: Bool
    private let isPipe: Bool

    /// - Parameters:
    ///   - descriptor: open for writing; the caller keeps it.
    ///   - interrupt: readable when a write is to be given up; -1 for never.
    public init(_ descriptor: Int32, interrupt: Int32 = -1) {
        self.descriptor = descriptor
        self.interrupt = interrupt
        var status = stat()
        let mode = unsafe fstat(descriptor, &status) == 0 ? status.st_mode & S_IFMT : 0
        isFile = mode == S_IFREG
        isPipe = mode == S_IFIFO
    }

    /// - Parameter descriptor: of a regular file, open for writing; the caller keeps it.
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

    /// Copies `length` bytes from where `source`, a file, stands.
    public func copy(from source: Int32, length: Int) -> Outcome {
        var rest = length
        var way = isFile ? Way.range : isPipe ? .splice : .send
        while rest > 0 {
            switch copySome(from: source, min(rest, Output.copyBytes), way) {
            case .success(0): return .short
            case .success(let count): rest -= count
            case .failure(let end):
                // Another file system, or a device that cannot.
                guard case .failed(let number) = end.outcome, let next = way.next,
                    [EXDEV, EINVAL, ENOSYS, EOPNOTSUPP].contains(number)
                else { return end.outcome }
                way = next
            }
        }
        return .done
    }

    /// How bytes get from a file to the descriptor; the later, the more descriptors can.
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

    /// Calls once the descriptor takes something, and again as long as it was interrupted or took nothing.
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

    /// Nil when there is room.
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
