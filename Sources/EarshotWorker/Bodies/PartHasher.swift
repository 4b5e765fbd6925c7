internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto
internal import Synchronization

/// Threads that hash large bodies with SHA-256 outside the event loop: a GiB takes half a second.
final class PartHasher {
    /// The hash of one range of a file, handed to a thread and back to the loop.
    final class Task: Sendable {
        let attempt: AttemptID
        /// Range of the file to hash, in bytes.
        let range: Range<Int>
        /// A duplicate that belongs to the task and is closed by its thread.
        fileprivate let descriptor: Int32
        private let isCancelled = Atomic(false)
        /// Whether the thread makes a checkpoint.
        private let makesCheckpoint: Bool
        private let finishedCheckpoint = Mutex<Checkpoint?>(nil)
        /// Covers all bytes before the range until the thread takes it, and the range as well once the thread is done.
        private let hash: Mutex<SHA256?>

        fileprivate init(
            attempt: AttemptID, descriptor: Int32, range: Range<Int>, continuing hash: consuming sending SHA256,
            makesCheckpoint: Bool
        ) {
            self.makesCheckpoint = makesCheckpoint
            self.attempt = attempt
            self.descriptor = descriptor
            self.range = range
            self.hash = Mutex(hash)
        }

        /// Cancels the task. It is still returned, without a result.
        func cancel() { isCancelled.store(true, ordering: .relaxed) }

        /// Returns the hash including the range, once; nil if the range could not be read.
        func takeHash() -> SHA256? { hash.withLock { $0.take() } }

        /// The checkpoint at the end of the range; nil if none was requested, or the file could not be synchronized.
        var checkpoint: Checkpoint? { finishedCheckpoint.withLock { $0 } }

        /// Hashes the range, on a background thread.
        fileprivate func hashRange() {
            var hash = takeHash()
            var buffer = [UInt8](repeating: 0, count: min(Limits.hashReadBytes, range.count))
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
            if done == range.upperBound {
                if makesCheckpoint, !isCancelled.load(ordering: .relaxed), fdatasync(descriptor) == 0 {
                    recordCheckpoint(hash)
                }
                self.hash.withLock { $0 = hash.take() }
            }
            close(descriptor)
        }

        private func recordCheckpoint(_ hash: borrowing SHA256?) {
            switch hash {
            case .some(let hash):
                let digest = hash.copy().finalize()
                finishedCheckpoint.withLock { $0 = Checkpoint(byteCount: range.upperBound, sha256: digest.hex) }
            case nil: break
            }
        }
    }

    private let finishedTaskMailbox: Mailbox<Task>
    private let loop: EventLoop
    private var registration: EventLoop.Registration?
    private var waitingTasks: Deque<Task> = []
    private var runningTaskCount = 0
    private var finishedTasks: [Task] = []

    init(_ loop: EventLoop) throws(SystemError) {
        self.loop = loop
        finishedTaskMailbox = try Mailbox()
        registration = try loop.add(finishedTaskMailbox.descriptor, .readable) { [weak self] _ in
            guard let self else { return }
            let tasks = finishedTaskMailbox.takeAll()
            runningTaskCount -= tasks.count
            finishedTasks += tasks
            startWaitingTasks()
        }
    }

    deinit {
        if let registration { loop.remove(registration) }
        for task in waitingTasks { close(task.descriptor) }
    }

    /// Removes and returns the finished tasks, including cancelled ones.
    func takeFinishedTasks() -> [Task] {
        guard !finishedTasks.isEmpty else { return [] }
        defer { finishedTasks = [] }
        return finishedTasks
    }

    /// Starts hashing a range of an open file on a thread. The task keeps a duplicate of the descriptor.
    ///
    /// - Parameter syncs: Whether the thread then synchronizes the file, for a checkpoint. The hash must cover all
    ///   bytes before the range.
    func hash(
        _ descriptor: Int32, _ range: Range<Int>, continuing hash: consuming sending SHA256, for attempt: AttemptID,
        syncs: Bool = false
    ) throws(SystemError) -> Task {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw SystemError("dup spool file", number: errno) }
        let task = Task(attempt: attempt, descriptor: copy, range: range, continuing: hash, makesCheckpoint: syncs)
        waitingTasks.append(task)
        startWaitingTasks()
        return task
    }

    private func startWaitingTasks() {
        while runningTaskCount < Limits.hashThreads, let task = waitingTasks.popFirst() {
            runningTaskCount += 1
            let mailbox = finishedTaskMailbox
            do throws(SystemError) {
                try BackgroundThread.run {
                    task.hashRange()
                    mailbox.put(task)
                }
            } catch {
                // The result would not cover the range, so it is dropped.
                _ = task.takeHash()
                close(task.descriptor)
                mailbox.put(task)
            }
        }
    }
}
