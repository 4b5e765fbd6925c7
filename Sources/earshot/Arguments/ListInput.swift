internal import EarshotLoop
internal import Glibc

/// Incremental reader of a URL list on standard input.
final class ListInput {
    /// Size of one read, in bytes.
    private static let chunkBytes = 64 << 10
    /// Time for the options of a URL to follow it.
    private static let patience = Duration.milliseconds(20)

    private let loop: EventLoop
    private let onEntries: ([ListEntry]) -> Void
    /// Releases a URL that no option has followed.
    private var releaseTimer: TimerID?
    private var list = URLList()
    private var registration: EventLoop.Registration?
    private var buffer = [UInt8](repeating: 0, count: chunkBytes)
    private var isWanted = false
    private var isReading = false
    /// Whether the list has ended.
    private(set) var hasEnded = false
    /// Cause of an early end; nil at the regular end.
    private(set) var fault: CommandError?

    /// - Parameter onEntries: called with the URLs of each read, and at the end.
    init(_ loop: EventLoop, onEntries: @escaping ([ListEntry]) -> Void) {
        self.loop = loop
        self.onEntries = onEntries
    }

    deinit { pause() }

    /// Reads until ``pause()``. A regular file cannot be polled, so it is read at once.
    func resume() {
        isWanted = true
        guard registration == nil, !hasEnded, !isReading else { return }
        awaitOptions()
        do throws(SystemError) {
            registration = try loop.add(STDIN_FILENO, .readable) { [unowned self] _ in readSome() }
        } catch {
            isReading = true
            while isWanted, !hasEnded { readSome() }
            isReading = false
        }
    }

    /// Stops reading. The writer of standard input then blocks at a full pipe.
    func pause() {
        isWanted = false
        if let registration { loop.remove(registration) }
        registration = nil
        if let releaseTimer { loop.cancelTimer(releaseTimer) }
        releaseTimer = nil
    }

    private func awaitOptions() {
        if let releaseTimer { loop.cancelTimer(releaseTimer) }
        releaseTimer = nil
        guard list.hasOpenEntry else { return }
        releaseTimer = loop.setTimer(after: Self.patience) { [unowned self] in
            releaseTimer = nil
            onEntries(list.release())
        }
    }

    private func readSome() {
        let count = unsafe read(STDIN_FILENO, &buffer, buffer.count)
        if count > 0 {
            let entries = list.take(buffer[..<count])
            awaitOptions()
            return onEntries(entries)
        }
        if count < 0, errno == EINTR || errno == EAGAIN { return }
        if count < 0 {
            fault = CommandError(.noInput, unsafe "cannot read standard input: \(String(cString: strerror(errno)))")
        }
        hasEnded = true
        pause()
        onEntries(list.finish())
    }
}
