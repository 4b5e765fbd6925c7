internal import Crypto
internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Synchronization

/// Puts what is there of broken bodies through SHA-256, on threads beside the loop: a GiB takes a second.
final class PartHasher {
    /// The hash of one part while it is made, and its way back to the loop.
    final class Task: Sendable {
        let attempt: AttemptID
        fileprivate let bytes: Int
        /// Of its own; closed by its thread.
        fileprivate let descriptor: Int32
        private let isCancelled = Atomic(false)
        private let hash = Mutex<SHA256?>(nil)

        fileprivate init(_ attempt: AttemptID, _ descriptor: Int32, bytes: Int) {
            self.attempt = attempt
            self.descriptor = descriptor
            self.bytes = bytes
        }

        /// Its result is not wanted any more.
        func cancel() { isCancelled.store(true, ordering: .relaxed) }

        /// The hash that has seen all bytes, once; nil if they could not be read.
        func takeHash() -> SHA256? { hash.withLock { $0.take() } }

        /// Reads the file's first `bytes` bytes.
        fileprivate func work() {
            var hash: SHA256? = SHA256()
            var buffer = [UInt8](repeating: 0, count: Limits.hashPieceBytes)
            var done = 0
            while done < bytes, !isCancelled.load(ordering: .relaxed) {
                let wanted = min(buffer.count, bytes - done)
                let count = unsafe buffer.withUnsafeMutableBytes {
                    unsafe pread(descriptor, $0.baseAddress, wanted, done)
                }
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                hash?.update(buffer.span.extracting(0..<count))
                done += count
            }
            close(descriptor)
            if done == bytes { self.hash.withLock { $0 = hash.take() } }
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

    /// Begins to hash the first `bytes` bytes of an open file, of which it keeps a descriptor of its own.
    func hash(_ descriptor: Int32, bytes: Int, for attempt: AttemptID) throws(SystemError) -> Task {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw SystemError("dup spool file", number: errno) }
        let task = Task(attempt, copy, bytes: bytes)
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
                // Without a hash it begins anew.
                close(task.descriptor)
                mailbox.put(task)
            }
        }
    }
}
