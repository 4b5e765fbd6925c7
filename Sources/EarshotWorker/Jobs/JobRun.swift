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
    var bytesOfPass: Int { get }
    /// Number of times that the request was sent again.
    var repeatCount: Int { get }
    /// Whether the job waits only for the hash of its body.
    var isSealing: Bool { get }
    /// Whether all bytes of the body are hashed.
    var isHashed: Bool { get }

    /// Raises the maximum body size; nil removes it.
    func raise(to maximum: Int?)
    /// Starts a thread on the next range of the hash of a large body. A job that is sealing includes all remaining
    /// bytes.
    func hash(on hasher: PartHasher) throws(SystemError)
    /// Takes the result of a hash thread.
    ///
    /// - Returns: false if the thread could not read the file.
    func hashed(_ task: PartHasher.Task) -> Bool
    /// Returns the PROGRESS for the bytes received so far.
    func takeProgress() -> WorkerMessage
    /// Records that the broker has received the last PROGRESS.
    func progressTaken()
    /// Ends the job early. The first reason counts.
    ///
    /// - Returns: Whether it has ended. A program, or a transfer that must wait for the answer to its lookup, ends later,
    ///   and then fails for this reason.
    func stop(_ reason: Refusal) -> Bool
    /// Leaves the bytes received so far to the broker, if a later attempt may continue them.
    func leavePart() -> BodyPart?
    /// Returns the result. The receiver owns the file of its body, if there is one, and must delete it.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?)
    /// Releases all resources, and deletes the body that was not handed over.
    func release()
}

/// State of a run that all kinds of jobs have.
struct RunState {
    /// Arrival of the JOB.
    let started: LoopTime
    /// Whether the run has ended, or its body is not needed any more. Its notes are then ignored.
    var isOver = false
    /// Timer of a time limit; nil without one.
    var timer: TimerID?
    /// Time of the last PROGRESS; at first that of the JOB. A job that ends before the first one is due sends none.
    fileprivate(set) var progressSent: LoopTime
    /// Whether a PROGRESS is noted.
    fileprivate(set) var isProgressNoted = false

    init(now: LoopTime) {
        started = now
        progressSent = now
    }
}

extension JobRun {
    var bytesOfPass: Int { 0 }
    var repeatCount: Int { 0 }

    func progressTaken() {}
    func stop(_ reason: Refusal) -> Bool { true }
    func leavePart() -> BodyPart? { nil }

    /// Notes the run for a PROGRESS, if the job wants some.
    func noteProgress() {
        guard !state.isProgressNoted, job.progressMilliseconds != nil else { return }
        state.isProgressNoted = true
        jobs.progressed.append(self)
    }

    /// Time of the next PROGRESS.
    var progressDue: LoopTime { state.progressSent.advanced(milliseconds: job.progressMilliseconds ?? 0) }

    /// Sends a PROGRESS, or notes the run again if the connection does not take it.
    ///
    /// - Parameter isEarly: Whether the PROGRESS does not wait for its time. A timer for the regular one remains.
    func sendProgress(isEarly: Bool = false) {
        if !isEarly { state.isProgressNoted = false }
        state.progressSent = jobs.loop.now
        if jobs.link.sendNow(takeProgress()) { progressTaken() } else if !isEarly { noteProgress() }
    }
}
