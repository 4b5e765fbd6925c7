internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// One job while a program does it: the process, what it has written so far, and how far that was told.
final class ProgramRun {
    let job: Job
    let started: LoopTime
    private(set) var fate = ProgramFate()
    private(set) var child: ChildProcess
    /// How the program ended; nil while it runs.
    private(set) var exit: ChildProcess.Exit?
    /// The timer after which it is killed.
    var graceTimer: TimerID?
    /// Where its body's file is; nil without a spool.
    let spool: SpoolFolder?
    private var output: ProgramPipe?
    private var errors: ProgramPipe?
    private var registration: EventLoop.Registration?
    private var body: BodyStore?
    private var words = LastLine()
    private var hashing: PartHasher.Task?
    private var progressSent: LoopTime?
    /// Whether bytes came that no PROGRESS told of.
    private(set) var hasNews = false
    /// Whether a timer will ask for it.
    var isProgressPlanned = false
    private let loop: EventLoop

    /// Starts the program.
    ///
    /// - Parameter ready: called when the program has written something, or has ended.
    init(
        _ job: Job, _ input: [UInt8]?, _ options: ProgramOptions, _ terms: ProgramWorker.Terms, loop: EventLoop,
        ready: @escaping (ProgramRun) -> Void
    ) throws(SystemError) {
        self.job = job
        self.loop = loop
        started = loop.now
        let spool = terms.spool
        self.spool = spool
        body = BodyStore(inlineLimit: terms.inlineBytes, wished: job.inlineBytes, maximum: job.maxBytes) {
            () throws(SystemError) in
            guard let spool else { throw SystemError("no spool", number: ENOENT) }
            return try SpoolFile(SpoolFile.name(job.attempt, pid: getpid()), in: spool)
        }
        let outputPipe = try InheritedPipe.make()
        defer { close(outputPipe.writer) }
        let errorPipe: (reader: Int32, writer: Int32)
        do throws(SystemError) {
            errorPipe = try InheritedPipe.make()
        } catch {
            close(outputPipe.reader)
            throw error
        }
        defer { close(errorPipe.writer) }
        do throws(SystemError) {
            child = try Self.start(job, input, options, output: outputPipe.writer, errors: errorPipe.writer)
        } catch {
            close(outputPipe.reader)
            close(errorPipe.reader)
            throw error
        }
        // From here on there is a process, which is reaped by whoever looks after the run.
        do throws(SystemError) {
            output = try ProgramPipe(outputPipe.reader, loop) { [unowned self] in ready(self) }
        } catch {
            close(errorPipe.reader)
            try abort(error)
        }
        do throws(SystemError) {
            errors = try ProgramPipe(errorPipe.reader, loop) { [unowned self] in ready(self) }
            registration = try loop.add(child.descriptor, .readable) { [unowned self] _ in ready(self) }
        } catch {
            try abort(error)
        }
    }

    /// A process that cannot be watched is none.
    private func abort(_ error: SystemError) throws(SystemError) {
        child.sendToGroup(SIGKILL)
        _ = hasEnded(within: -1)
        _ = child.reap()
        throw error
    }

    deinit { if let registration { loop.remove(registration) } }

    private static func start(
        _ job: Job, _ input: [UInt8]?, _ options: ProgramOptions, output: Int32, errors: Int32
    ) throws(SystemError) -> ChildProcess {
        var streams = ChildProcess.Streams(output: output, errors: errors)
        if let input { streams.input = try InheritedPipe.file(holding: input) }
        defer { if let file = streams.input { close(file) } }
        var variables = options.variables
        variables["EARSHOT_URL"] = job.url
        variables["EARSHOT_METHOD"] = job.method
        variables["EARSHOT_PRIORITY"] = (job.priority ?? .normal).name
        variables["EARSHOT_HEADERS"] = String(decoding: job.httpFields, as: UTF8.self)
        variables["EARSHOT_MAX_BYTES"] = job.maxBytes.map { String($0) } ?? ""
        return try ChildProcess.spawn(
            options.program, options.arguments + [job.url], streams: streams, variables: variables)
    }

    /// Decoded bytes of the body so far; 0 once they are given away.
    var receivedBytes: Int { body?.count ?? 0 }

    // MARK: What the program does

    /// Takes what the program has written, of very much a part, and notes its end.
    ///
    /// - Returns: whether there may be more to take.
    func take(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        readErrors(into: &buffer)
        let isMore = try readOutput(into: &buffer)
        guard exit == nil, hasEnded(within: 0) else { return isMore && exit == nil }
        // What the program started does not outlive it. While it is not reaped its number is its group's.
        child.sendToGroup(SIGKILL)
        exit = child.reap()
        if let registration { loop.remove(registration) }
        registration = nil
        // All of it is in the pipes now; what somebody who left the group writes later is nobody's.
        for _ in 0..<Limits.lastPieces {
            guard try readOutput(into: &buffer) else { break }
        }
        readErrors(into: &buffer)
        output = nil
        errors = nil
        return false
    }

    /// - Parameter milliseconds: how long to wait for it; -1 for as long as it takes.
    private func hasEnded(within milliseconds: Int32) -> Bool {
        var entry = pollfd(fd: child.descriptor, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&entry, 1, milliseconds) > 0
    }

    private func readErrors(into buffer: inout [UInt8]) {
        for _ in 0..<Limits.piecesPerPass {
            guard let piece = errors?.read(into: &buffer) else { return }
            switch piece {
            case .bytes(let count): words.append(buffer.span.extracting(0..<count))
            case .nothingYet: return
            case .end:
                errors = nil
                return
            }
        }
    }

    private func readOutput(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        for _ in 0..<Limits.piecesPerPass {
            guard let piece = output?.read(into: &buffer) else { return false }
            switch piece {
            case .bytes(let count): try keep(buffer.span.extracting(0..<count))
            case .nothingYet: return false
            case .end:
                output = nil
                return false
            }
        }
        return true
    }

    private func keep(_ bytes: Span<UInt8>) throws(Refusal) {
        // Who asks by HEAD wants to know whether, not what.
        guard job.method != "HEAD" else { return }
        hasNews = true
        do throws(BodyStore.Fault) {
            try body?.append(bytes)
        } catch {
            throw Refusal(body: error)
        }
    }

    // MARK: Its end

    /// Its job ends before the program; the first reason counts.
    func stop(_ reason: Refusal) -> Bool {
        guard fate.stop(reason) == .terminate else { return false }
        _ = body.take()
        hashing?.cancel()
        output = nil
        child.sendToGroup(SIGTERM)
        return true
    }

    /// The time to end is over.
    func graceOver() {
        if fate.graceOver() == .kill { child.sendToGroup(SIGKILL) }
    }

    /// Ends all of it at once, to be told of by nobody.
    func kill() {
        child.sendToGroup(SIGKILL)
        _ = body.take()
    }

    /// Lets the body be larger than the JOB said.
    func raise(to maximum: Int?) { body?.raise(to: maximum) }

    /// What is left of the body to hash goes to a thread.
    ///
    /// - Returns: whether that has to be waited for.
    func seal(on hasher: PartHasher) throws(SystemError) -> Bool {
        guard fate.isWanted, body?.isHashed == false else { return false }
        hashing = try body?.hashRest(on: hasher, for: job.attempt)
        return true
    }

    /// A thread has hashed it.
    ///
    /// - Returns: false if it could not read the file.
    func hashed(_ task: PartHasher.Task) -> Bool {
        guard task === hashing else { return true }
        hashing = nil
        guard let hash = task.takeHash() else { return false }
        body?.hashed(hash, upTo: task.range.upperBound)
        return true
    }

    /// The answer; its file, if it has one, is the receiver's to delete.
    func complete(contentType: String?) throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard let exit else { preconditionFailure("\(job.attempt) is not over") }
        if let refusal = fate.ended(exit, words: words.text) { throw refusal }
        guard let store = body.take() else { throw Refusal(.internalError) }
        var completion = Completion(attempt: job.attempt, status: 200)
        completion.elapsedMilliseconds = Int(loop.now.since(started) / .milliseconds(1))
        if let contentType { completion.httpFields = Array("content-type: \(contentType)".utf8) }
        do throws(BodyStore.Fault) {
            let body = try store.finish()
            completion.length = body.length
            completion.sha256 = body.digest.hex
            completion.file = body.file
            return (completion, body.length > 0 ? body.inline : nil)
        } catch {
            throw Refusal(body: error)
        }
    }

    // MARK: Progress

    /// When the next PROGRESS may go out; nil if none is wanted.
    var progressDue: LoopTime? {
        guard let pause = job.progressMilliseconds, fate.isWanted, hasNews else { return nil }
        return (progressSent ?? started).advanced(by: .milliseconds(pause))
    }

    func takeProgress() -> WorkerMessage {
        hasNews = false
        progressSent = loop.now
        // If that fails the body stays where it is, as long as it may.
        if job.streams { try? body?.moveToFile() }
        let part = body?.fileName.map { BodyPart(file: $0, httpFields: []) }
        return .progress(job.attempt, received: receivedBytes, total: nil, part: part)
    }
}
