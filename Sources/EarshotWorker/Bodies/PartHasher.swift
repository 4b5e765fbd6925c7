internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto
internal import Synchronization

/// Puts what is there of large bodies through SHA-256, on threads beside the loop: a GiB takes half a second.
final class PartHasher {
    /// A hash on its way over one part of a file, and back to the loop.
    final class Task: Sendable {
        let attempt: AttemptID
        /// The bytes of the file that it goes over.
        let range: Range<Int>
        /// Of its own; closed by its thread.
        fileprivate let descriptor: Int32
        private let isCancelled = Atomic(false)
        /// What has seen all before the range, until the thread takes it; then what has seen the range too.
        private let hash: Mutex<SHA256?>

        fileprivate init(
            _ attempt: AttemptID, _ descriptor: Int32, _ range: Range<Int>, continuing hash: consuming sending SHA256
        ) {
            self.attempt = attempt
            self.descriptor = descriptor
            self.range = range
            self.hash = Mutex(hash)
        }

        /// Its result is not wanted any more.
        func cancel() { isCancelled.store(true, ordering: .relaxed) }

        /// The hash that has seen the range too, once; nil if that could not be read.
        func takeHash() -> SHA256? { hash.withLock { $0.take() } }

        /// Reads the range.
        fileprivate func work() {
            var hash = takeHash()
            var buffer = [UInt8](repeating: 0, count: min(Limits.hashPieceBytes, range.count))
            var done = range.lowerBound
            while done < range.upperBound, !isCancelled.load(ordering: .relaxed) {
                let wanted = min(buffer.count, range.upperBound - done)
                let count = unsafe buffer.withUnsafeMutableBytes {
                    unsafe pread(descriptor, $0.baseAddress, wanted, done)
                }
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                hash?.update(buffer.span.extracting(0..<count))
                done += count
            }
            close(descriptor)
            if done == range.upperBound { self.hash.withLock { $0 = hash.take() } }
        }
    }

    private let mailbox: Mailbox<Task>
    private let loop: EventLoop
    private var registration: EventLoop.Registration?
    private var waiting: Deque<Task> = []
    private var running = 0

    /// - Parameter finished: called on the loop with each task, cancelled ones included.
    init(_ loop: EventLoop, finished: @escaping (Task) -> Void) throws(SystemError) {
        self.loop = loop
        mailbox = try Mailbox()
        registration = try loop.add(mailbox.descriptor, .readable) { [weak self] _ in
            guard let self else { return }
            for task in mailbox.takeAll() {
                running -= 1
                finished(task)
            }
            start()
        }
    }

    deinit {
        if let registration { loop.remove(registration) }
        for task in waiting { close(task.descriptor) }
    }

    /// Begins to put a range of an open file, of which it keeps a descriptor of its own, through a hash.
    func hash(
        _ descriptor: Int32, _ range: Range<Int>, continuing hash: consuming sending SHA256, for attempt: AttemptID
    ) throws(SystemError) -> Task {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw SystemError("dup spool file", number: errno) }
        let task = Task(attempt, copy, range, continuing: hash)
        waiting.append(task)
        start()
        return task
    }

    private func start() {
        while running < Limits.hashThreads, let task = waiting.popFirst() {
            running += 1
            let mailbox = mailbox
            do throws(SystemError) {
                try BackgroundThread.run {
                    task.work()
                    mailbox.put(task)
                }
            } catch {
                // A hash that has not seen the range is none.
                _ = task.takeHash()
                close(task.descriptor)
                mailbox.put(task)
            }
        }
    }
}
