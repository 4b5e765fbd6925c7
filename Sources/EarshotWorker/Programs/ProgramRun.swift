internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// One job that a program runs: the process, its output so far, and the reported progress.
final class ProgramRun {
    let job: Job
    let started: LoopTime
    private(set) var fate = ProgramFate()
    private(set) var child: ChildProcess
    /// Exit status of the program; nil while it runs.
    private(set) var exit: ChildProcess.Exit?
    /// The timer that kills the program.
    var graceTimer: TimerID?
    /// Folder of the body's file; nil without a spool.
    let spool: SpoolFolder?
    /// Maximum size of the body in bytes, also if the requests allow more.
    private let mostBytes: Int
    private var output: ProgramPipe?
    private var errors: ProgramPipe?
    private var registration: EventLoop.Registration?
    private var body: BodyStore?
    private var words = LastLine()
    private var hashing: PartHasher.Task?
    private var progressSent: LoopTime?
    /// Whether bytes arrived since the last PROGRESS.
    private(set) var hasNews = false
    /// Whether a timer for the next PROGRESS is set.
    var isProgressPlanned = false
    private let loop: EventLoop

    /// Starts the program.
    ///
    /// - Parameter ready: Called when the program has written output or exited.
    init(
        _ job: Job, _ input: [UInt8]?, _ options: ProgramOptions, _ terms: ProgramWorker.Terms, loop: EventLoop,
        ready: @escaping (ProgramRun) -> Void
    ) throws(SystemError) {
        self.job = job
        self.loop = loop
        started = loop.now
        let spool = terms.spool
        self.spool = spool
        mostBytes = terms.mostBytes
        body = BodyStore(inlineLimit: terms.inlineBytes, maximum: min(job.maxBytes ?? .max, mostBytes)) {
            () throws(SystemError) in
            guard let spool else { throw SystemError("no spool", number: ENOENT) }
            return try SpoolFile(SpoolName.part(of: job.attempt, pid: getpid()), in: spool)
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
        // From here on there is a process, which the owner of the run must reap.
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

    /// Kills and reaps a process that cannot be watched.
    private func abort(_ error: SystemError) throws(SystemError) {
        child.killAndReap()
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
        variables["EARSHOT_PRIORITY"] = job.priority.name
        variables["EARSHOT_HEADERS"] = String(decoding: job.httpFields, as: UTF8.self)
        variables["EARSHOT_MAX_BYTES"] = job.maxBytes.map { String($0) } ?? ""
        return try ChildProcess.spawn(
            options.program, options.arguments + [job.url], streams: streams, variables: variables)
    }

    /// Decoded bytes of the body so far; 0 once the body is handed over.
    var receivedBytes: Int { body?.count ?? 0 }

    // MARK: Output and exit

    /// Reads the program's output, within a budget per call, and records its exit.
    ///
    /// - Returns: Whether more output may be available.
    func take(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        readErrors(into: &buffer)
        let isMore = try readOutput(into: &buffer)
        guard exit == nil, hasEnded else { return isMore && exit == nil }
        // Descendants of the program must not outlive it. Until it is reaped, its process ID cannot be reused as a
        // group ID.
        child.sendToGroup(SIGKILL)
        exit = child.reap()
        if let registration { loop.remove(registration) }
        registration = nil
        // The pipes now contain all output of the group. Later output of a process that left the group is ignored.
        for _ in 0..<Limits.lastPieces {
            guard try readOutput(into: &buffer) else { break }
        }
        readErrors(into: &buffer)
        output = nil
        errors = nil
        return false
    }

    private var hasEnded: Bool {
        var entry = pollfd(fd: child.descriptor, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&entry, 1, 0) > 0
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
        // A HEAD request asks only whether the resource exists.
        guard job.method != "HEAD" else { return }
        hasNews = true
        do throws(BodyStore.Fault) {
            try body?.append(bytes)
        } catch {
            throw Refusal(body: error)
        }
    }

    // MARK: Its end

    /// Ends the job before the program. The first reason counts.
    ///
    /// - Returns: Whether the grace period starts now.
    func stop(_ reason: Refusal) -> Bool {
        guard fate.stop(reason) == .terminate else { return false }
        _ = body.take()
        hashing?.cancel()
        output = nil
        child.sendToGroup(SIGTERM)
        return true
    }

    /// Kills the program at the end of the grace period.
    func graceOver() {
        if fate.graceOver() == .kill { child.sendToGroup(SIGKILL) }
    }

    /// Kills the program without a terminal for its job.
    func kill() {
        child.sendToGroup(SIGKILL)
        _ = body.take()
    }

    /// Raises the maximum body size; nil removes it.
    func raise(to maximum: Int?) { body?.raise(to: min(maximum ?? .max, mostBytes)) }

    /// Starts a thread on the unhashed rest of the body, unless one is running.
    ///
    /// - Returns: Whether the caller must wait for its result.
    func seal(on hasher: PartHasher) throws(SystemError) -> Bool {
        guard fate.isWanted, body?.isHashed == false else { return false }
        if hashing == nil { hashing = try body?.hashRest(on: hasher, for: job.attempt) }
        return true
    }

    /// Takes the result of a hash thread.
    ///
    /// - Returns: false if the thread could not read the file.
    func hashed(_ task: PartHasher.Task) -> Bool {
        guard task === hashing else { return true }
        hashing = nil
        guard let hash = task.takeHash() else { return false }
        body?.hashed(hash, upTo: task.range.upperBound)
        return true
    }

    /// Returns the completion. The receiver owns the file of its body, if there is one, and must delete it.
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

    /// Time of the next PROGRESS; nil if none is needed.
    var progressDue: LoopTime? {
        guard let pause = job.progressMilliseconds, fate.isWanted, hasNews else { return nil }
        return (progressSent ?? started).advanced(by: .milliseconds(pause))
    }

    func takeProgress() -> WorkerMessage {
        hasNews = false
        progressSent = loop.now
        // On failure the body stays in memory, up to its limit.
        if job.streams { try? body?.moveToFile() }
        let part = body?.fileName.map { BodyPart(file: $0, httpFields: []) }
        return .progress(job.attempt, received: receivedBytes, total: nil, part: part)
    }
}
