internal import EarshotLoop
internal import Glibc

/// Incremental reader of a URL list on standard input.
final class ListInput {
    /// Size of one read, in bytes.
    private static let chunkBytes = 64 << 10

    private let loop: EventLoop
    private let onURLs: ([String]) -> Void
    private var list = URLList()
    private var registration: EventLoop.Registration?
    private var buffer = [UInt8](repeating: 0, count: chunkBytes)
    private var isWanted = false
    private var isReading = false
    /// Whether the list has ended.
    private(set) var hasEnded = false
    /// Cause of an early end; nil at the regular end.
    private(set) var fault: Complaint?

    /// - Parameter onURLs: called with the URLs of each read, and at the end.
    init(_ loop: EventLoop, onURLs: @escaping ([String]) -> Void) {
        self.loop = loop
        self.onURLs = onURLs
    }

    deinit { pause() }

    /// Reads until ``pause()``. A regular file cannot be polled, so it is read at once.
    func resume() {
        isWanted = true
        guard registration == nil, !hasEnded, !isReading else { return }
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
    }

    private func readSome() {
        let count = unsafe read(STDIN_FILENO, &buffer, buffer.count)
        if count > 0 { return onURLs(list.take(buffer[..<count])) }
        if count < 0, errno == EINTR || errno == EAGAIN { return }
        if count < 0 {
            fault = Complaint(.noInput, unsafe "cannot read standard input: \(String(cString: strerror(errno)))")
        }
        hasEnded = true
        pause()
        onURLs(list.finish())
    }
}
