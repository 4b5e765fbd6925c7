internal import CLinux
internal import Glibc
internal import Synchronization

/// Writer of log lines to a descriptor, which never blocks.
///
/// The reader of a pipe or terminal may stop, as a pager does. Its buffer is then the bound: further lines are dropped
/// and counted. The next line that fits is preceded by one with their number. A regular file takes all lines.
public final class LogStream: Sendable {
    private enum Kind {
        /// A pipe or terminal with a file description of this object, opened without blocking. The flag of the
        /// original description would also affect the programs that share it.
        case reopenedDescription
        case socket
        /// A regular file, or a pipe or terminal that cannot be opened again, such as one of another user. The latter
        /// may block if two programs write at the same time.
        case sharedDescription
    }

    private struct State {
        /// Number of lines dropped since the last complete one.
        var droppedLineCount = 0
        /// Whether the last line was written in part.
        var isLastLinePartial = false
    }

    private let descriptor: Int32
    private let kind: Kind
    private let state = Mutex(State())

    /// - Parameter descriptor: descriptor open for writing; the caller owns it, and keeps it open.
    public init(_ descriptor: Int32) {
        var status = stat()
        let type = unsafe fstat(descriptor, &status) == 0 ? status.st_mode & S_IFMT : 0
        switch type {
        case S_IFSOCK: (self.descriptor, kind) = (descriptor, .socket)
        case S_IFIFO, S_IFCHR:
            let opened = unsafe open("/proc/self/fd/\(descriptor)", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
            (self.descriptor, kind) = opened < 0 ? (descriptor, .sharedDescription) : (opened, .reopenedDescription)
        default: (self.descriptor, kind) = (descriptor, .sharedDescription)
        }
    }

    deinit { if kind == .reopenedDescription { close(descriptor) } }

    /// Writes a line, or drops and counts it.
    ///
    /// - Parameters:
    ///   - line: the line with its end.
    ///   - report: returns the line for a number of dropped lines.
    public func write(_ line: [UInt8], droppedLinesReport report: (Int) -> [UInt8]) {
        state.withLock(of: self) { state in
            if state.droppedLineCount > 0 {
                let end = state.isLastLinePartial ? [UInt8(ascii: "\n")] : []
                guard writeBytes(end + report(state.droppedLineCount), &state) else {
                    state.droppedLineCount += 1
                    return
                }
                state.droppedLineCount = 0
            }
            if !writeBytes(line, &state) { state.droppedLineCount += 1 }
        }
    }

    /// - Returns: whether all bytes were written.
    private func writeBytes(_ bytes: [UInt8], _ state: inout State) -> Bool {
        let count = unsafe bytes.withUnsafeBytes { bytes in
            switch kind {
            case .reopenedDescription:
                return retryWhenInterrupted { unsafe Glibc.write(descriptor, bytes.baseAddress, bytes.count) }
            case .socket:
                let flags = Int32(MSG_DONTWAIT | MSG_NOSIGNAL)
                return retryWhenInterrupted { unsafe send(descriptor, bytes.baseAddress, bytes.count, flags) }
            case .sharedDescription:
                var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard unsafe poll(&ready, 1, 0) == 1 else { return -1 }
                return retryWhenInterrupted { unsafe Glibc.write(descriptor, bytes.baseAddress, bytes.count) }
            }
        }
        if count > 0 { state.isLastLinePartial = count < bytes.count }
        return count == bytes.count
    }

    private func retryWhenInterrupted(_ call: () -> Int) -> Int {
        while true {
            let count = call()
            if count >= 0 || errno != EINTR { return count }
        }
    }
}
