import EarshotWire
import Testing

@testable import EarshotCore

/// Work on files before events of workers.
struct FileWorkTests {
    private var rig = CoreRig()
    private let client: ClientID
    private let worker: WorkerID
    private let job: Job
    private let unrelated = WorkerID(rawValue: 99)

    init() throws {
        client = rig.client(1)
        worker = rig.worker(3)
        rig.pass { [client] in $0.fetch("a", "1", "http://a.example/", by: client) }
        job = try #require(rig.jobs.first)
    }

    private func done(_ file: String?) -> WorkerMessage {
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.sha256 = "sum"
        completion.fileName = file
        return .completed(completion)
    }

    private func failed(_ part: BodyPart? = nil) -> WorkerMessage {
        .failed(job.attempt, code: "reset", detail: nil, receivedBytes: 5, part: part)
    }

    /// The worker reports that the body grows in a file, with fields by which it can be continued.
    private mutating func grow() -> String {
        let file = SpoolName.partFile(of: job.attempt, pid: 3)
        let part = BodyPart(fileName: file, httpFields: Array("etag: \"a\"".utf8))
        rig.core.workerMessageReceived(
            .progress(job.attempt, received: 5, total: 10, part: part), body: nil, from: worker, now: rig.now)
        return file
    }

    private func part(_ file: String, isKept: Bool = true) -> WorkerFileOperations.UnfinishedFile {
        WorkerFileOperations.UnfinishedFile(
            attempt: job.attempt, fileName: file, newFileName: isKept ? SpoolName.keptPart(of: job.attempt) : nil)
    }

    @Test func `a finished file gets the name of its content`() {
        let work = rig.fileWork(before: done("x.part"), by: worker)
        #expect(work.body == .rename(name: "sum"))
        #expect(work.unfinishedFiles.isEmpty)
    }

    @Test func `a finished file without a digest has no name`() {
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.fileName = "x.part"
        #expect(rig.fileWork(before: .completed(completion), by: worker).body == .rename(name: nil))
    }

    @Test func `a file of an attempt that is not the worker's is unwanted`() {
        #expect(rig.fileWork(before: done("x.part"), by: unrelated).body == .removeOfOtherAttempt)
    }

    @Test mutating func `a body in a message needs no file, and the part that it does not continue is kept`() {
        #expect(rig.fileWork(before: done(nil), by: worker) == WorkerFileOperations())
        let file = grow()
        #expect(rig.fileWork(before: done(nil), by: worker).unfinishedFiles == [part(file)])
        #expect(rig.fileWork(before: done(file), by: worker).unfinishedFiles.isEmpty)
    }

    @Test mutating func `a broken transfer leaves the part that it names, else the one that it reported before`() {
        #expect(rig.fileWork(before: failed(), by: worker).unfinishedFiles.isEmpty)
        let file = grow()
        #expect(rig.fileWork(before: failed(), by: worker).unfinishedFiles == [part(file)])
        let other = BodyPart(fileName: "other.part", httpFields: [])
        #expect(rig.fileWork(before: failed(other), by: worker).unfinishedFiles == [part("other.part")])
        #expect(
            rig.fileWork(before: failed(other), by: unrelated).unfinishedFiles == [part("other.part", isKept: false)])
    }

    @Test mutating func `a worker that leaves or dies leaves all parts that an attempt can continue`() {
        #expect(rig.fileWork(before: .bye, by: worker).unfinishedFiles.isEmpty)
        let file = grow()
        #expect(rig.fileWork(before: .bye, by: worker).unfinishedFiles == [part(file)])
        #expect(rig.fileWork(beforeLossOf: worker).unfinishedFiles == [part(file)])
        #expect(rig.fileWork(beforeLossOf: unrelated).unfinishedFiles.isEmpty)
    }

    @Test func `a file that cannot get its name is a failure`() throws {
        let completion = Completion(attempt: job.attempt, status: 200)
        guard
            case .failed(job.attempt, "spool-failed", nil, _, _, nil, _, _) = FinishedFileFailure.spoolRemoved
                .failureMessage(for: completion)
        else {
            Issue.record("a lost file is not a failure of the spool")
            return
        }
        guard
            case .failed(_, "internal", _?, _, _, nil, _, _) = FinishedFileFailure.fileMismatchesDone.failureMessage(
                for: completion)
        else {
            Issue.record("a file that is not as its DONE says is not an internal failure with a detail")
            return
        }
    }

    @Test func `other messages need no work`() {
        for message in [WorkerMessage.pong, .slots(3), .ready(Ready(slots: 1))] {
            #expect(rig.fileWork(before: message, by: worker) == WorkerFileOperations())
        }
    }
}
