internal import EarshotLoop
internal import EarshotWire

/// One running job, from its JOB to its DONE or FAILED.
protocol JobRun: AnyObject {
    var job: Job { get }
    var terms: Terms { get }
    var jobs: RunTable<Self> { get }
    var state: RunState { get set }

    /// Decoded bytes of the body so far.
    var receivedBytes: Int { get }
    /// Bytes of the body that arrived in this pass: an upper bound of those that arrived after a CANCEL read in it.
    var bodyBytesInCurrentPass: Int { get }
    /// Number of times that the request was sent again.
    var requestRepeatCount: Int { get }
    /// Whether the job waits only for the hash of its body.
    var isAwaitingBodyHash: Bool { get }
    /// Whether all bytes of the body are hashed.
    var isBodyHashed: Bool { get }

    /// Raises the maximum body size; nil removes it.
    func raiseMaximumBodyBytes(to maximum: Int?)
    /// Starts a thread on the next range of the hash of a large body. A job that waits only for its hash includes all
    /// remaining bytes.
    func startHashing(on hasher: PartHasher) throws(SystemError)
    /// Takes the result of a hash thread.
    ///
    /// - Returns: false if the thread could not read the file.
    func receiveHash(from task: PartHasher.Task) -> Bool
    /// Returns the PROGRESS for the bytes received so far.
    func makeProgressMessage() -> WorkerMessage
    /// Records that the broker has received the last PROGRESS.
    func recordSentProgress()
    /// Ends the job early. The first reason counts.
    ///
    /// - Returns: Whether it has ended. A program, or a transfer that must wait for the answer to its lookup, ends
    ///   later, and then fails for this reason.
    func stop(because reason: Refusal) -> Bool
    /// Leaves the bytes received so far to the broker, if a later attempt may continue them.
    func handOverPartialBody() -> BodyPart?
    /// Returns the result. The receiver owns the file of its body, if there is one, and must delete it.
    func makeCompletion() throws(Refusal) -> (completion: Completion, body: [UInt8]?)
    /// Releases all resources, and deletes the body that was not handed over.
    func release()
}

/// State of a run that all kinds of jobs have.
struct RunState {
    /// Arrival of the JOB.
    let startTime: LoopTime
    /// Whether the run has ended, or its body is not needed any more. Work scheduled for it is then ignored.
    var isOver = false
    /// Timer of a time limit; nil without one.
    var timeLimitTimer: TimerID?
    /// Time of the last PROGRESS; at first that of the JOB. A job that ends before the first one is due sends none.
    fileprivate(set) var lastProgressTime: LoopTime
    /// Whether a PROGRESS is scheduled.
    fileprivate(set) var isProgressScheduled = false

    init(now: LoopTime) {
        startTime = now
        lastProgressTime = now
    }
}

extension JobRun {
    var bodyBytesInCurrentPass: Int { 0 }
    var requestRepeatCount: Int { 0 }

    func recordSentProgress() {}
    func stop(because reason: Refusal) -> Bool { true }
    func handOverPartialBody() -> BodyPart? { nil }

    /// Schedules a PROGRESS, if the job requests any.
    func scheduleProgress() {
        guard !state.isProgressScheduled, job.progressIntervalMilliseconds != nil else { return }
        state.isProgressScheduled = true
        jobs.runsWithProgress.append(self)
    }

    /// Time of the next PROGRESS.
    var nextProgressTime: LoopTime {
        state.lastProgressTime.advanced(milliseconds: job.progressIntervalMilliseconds ?? 0)
    }

    /// Sends a PROGRESS, or schedules it again if the connection does not take it.
    ///
    /// - Parameter isEarly: Whether the PROGRESS does not wait for its time. A timer for the regular one remains.
    func sendProgress(isEarly: Bool = false) {
        if !isEarly { state.isProgressScheduled = false }
        state.lastProgressTime = jobs.loop.now
        if jobs.link.sendUnqueued(makeProgressMessage()) {
            recordSentProgress()
        } else if !isEarly {
            scheduleProgress()
        }
    }
}
