internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// One job that a program runs: the process, and its output so far.
///
/// ```
/// running → ended → over                (the program exits; the hash of a large body may follow)
/// running → stopping → ended → over     (the job ends before the program, which is killed after the grace period)
/// ```
final class ProgramRun: JobRun {
    private enum Phase {
        case running
        /// SIGTERM was sent to the process group, for this reason.
        case stopping(Refusal)
        /// The program has exited. The failure of the job; nil if it succeeded.
        case ended(Refusal?)
    }

    let job: Job
    let terms: Terms
    let jobs: RunTable<ProgramRun>
    var state: RunState
    private var phase = Phase.running
    private let child: ChildProcess
    private let contentType: String?
    private var output: ProgramPipe?
    private var errors: ProgramPipe?
    private var registration: EventLoop.Registration?
    private var body: IncomingBody
    private var words = LastLine()

    /// Starts the program.
    ///
    /// - Parameter ready: Called when the program has written output or exited.
    init(
        _ job: Job, _ input: [UInt8]?, _ options: ProgramOptions, _ terms: Terms, _ jobs: RunTable<ProgramRun>,
        ready: @escaping () -> Void
    ) throws(SystemError) {
        self.job = job
        self.terms = terms
        self.jobs = jobs
        let loop = jobs.loop
        state = RunState(now: loop.now)
        contentType = options.contentType
        body = IncomingBody(of: job.attempt, terms, maxBytes: min(job.maxBytes ?? .max, terms.mostBytes))
        let outputPipe = try InheritedPipe.make()
        defer { close(outputPipe.writer) }
        output = try ProgramPipe(outputPipe.reader, loop, readable: ready)
        let errorPipe = try InheritedPipe.make()
        defer { close(errorPipe.writer) }
        errors = try ProgramPipe(errorPipe.reader, loop, readable: ready)
        child = try Self.start(job, input, options, output: outputPipe.writer, errors: errorPipe.writer)
        do throws(SystemError) {
            registration = try loop.add(child.descriptor, .readable) { _ in ready() }
        } catch {
            child.killAndReap()
            throw error
        }
    }

    deinit { if let registration { jobs.loop.remove(registration) } }

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

    // MARK: Output and exit

    /// Reads the program's output, within a budget per call, and records its exit.
    ///
    /// - Returns: Whether more output may be available.
    func take(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        readErrors(into: &buffer)
        let isMore = try readOutput(into: &buffer)
        guard !isSealing else { return false }
        guard hasExited else { return isMore }
        // Descendants of the program must not outlive it. Until it is reaped, its process ID cannot be reused as a
        // group ID.
        child.sendToGroup(SIGKILL)
        guard let exit = child.reap() else { return isMore }
        if let registration { jobs.loop.remove(registration) }
        registration = nil
        defer {
            readErrors(into: &buffer)
            output = nil
            errors = nil
            if case .stopping(let reason) = phase {
                phase = .ended(reason)
            } else {
                phase = .ended(Refusal(exit, words: words.text))
            }
        }
        // The pipes now contain all output of the group. Later output of a process that left the group is ignored.
        for _ in 0..<Limits.lastPieces {
            guard try readOutput(into: &buffer) else { break }
        }
        return false
    }

    private var hasExited: Bool {
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
            case .bytes(let count): try receiveOutput(buffer.span.extracting(0..<count))
            case .nothingYet: return false
            case .end:
                output = nil
                return false
            }
        }
        return true
    }

    private func receiveOutput(_ bytes: Span<UInt8>) throws(Refusal) {
        // A HEAD request asks only whether the resource exists.
        guard job.method != "HEAD" else { return }
        noteProgress()
        do throws(IncomingBody.Fault) {
            try body.append(bytes)
        } catch {
            throw Refusal(body: error)
        }
    }

    // MARK: The job

    var receivedBytes: Int { body.count }
    var isSealing: Bool { if case .ended = phase { true } else { false } }
    var isHashed: Bool { body.isHashed }

    func raise(to maximum: Int?) { body.raise(to: min(maximum ?? .max, terms.mostBytes)) }

    func hash(on hasher: PartHasher) throws(SystemError) {
        try body.hash(on: hasher, isLast: isSealing)
    }

    func hashed(_ task: PartHasher.Task) -> Bool { body.hashed(task, now: jobs.loop.now) }

    func takeProgress() -> WorkerMessage {
        if job.streams { body.moveToFile() }
        let part = body.fileName.map { BodyPart(file: $0) }
        return .progress(job.attempt, received: receivedBytes, total: nil, part: part)
    }

    /// Asks a running program to exit, and kills it after the grace period.
    func stop(_ reason: Refusal) -> Bool {
        guard case .running = phase else { return isSealing }
        phase = .stopping(reason)
        state.isOver = true
        body.discard()
        output = nil
        child.sendToGroup(SIGTERM)
        state.timer = jobs.loop.setTimer(after: Limits.programGrace) { [child] in child.sendToGroup(SIGKILL) }
        return false
    }

    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        if case .ended(let refusal?) = phase { throw refusal }
        var completion = Completion(attempt: job.attempt, status: 200)
        if let contentType { completion.httpFields = Array("content-type: \(contentType)".utf8) }
        let bytes = try body.finish(into: &completion)
        return (completion, bytes)
    }

    /// Kills the program if it still runs.
    func release() {
        body.discard()
        child.sendToGroup(SIGKILL)
    }
}

extension Refusal {
    /// The failure of a job whose program exited by itself; nil if it succeeded. Exit codes of curl, which `earshot get` uses as
    /// well, keep their meaning, so that a script can pass on the code it got. All other codes are `worker-failed`.
    ///
    /// - Parameter words: Last line of the program's standard error; empty for none.
    init?(_ exit: ChildProcess.Exit, words: String) {
        let code: FailureCode
        switch exit {
        case .code(0): return nil
        case .code(3): code = .malformedURL
        case .code(6): code = .unknownHost
        case .code(7): code = .connectFailed
        case .code(18): code = .truncated
        case .code(28): code = .timeout
        case .code(56): code = .reset
        case .code(60): code = .tls
        case .code(63): code = .tooLarge
        case .code, .signal: code = .workerFailed
        }
        self.init(code, words.isEmpty ? "The program ended with \(exit)." : words)
    }
}

/// The last non-blank line of a stream, in bounded memory.
struct LastLine {
    private var lastLine: [UInt8] = []
    private var presentLine: [UInt8] = []

    /// Sanitized text for a message; empty without such a line.
    var text: String {
        Printable.sentence(String(decoding: Self.isBlank(presentLine) ? lastLine : presentLine, as: UTF8.self))
    }

    mutating func append(_ bytes: Span<UInt8>) {
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == UInt8(ascii: "\n") {
                if !Self.isBlank(presentLine) { lastLine = presentLine }
                presentLine.removeAll(keepingCapacity: true)
            } else if presentLine.count < Limits.sentenceBytes {
                presentLine.append(byte)
            }
        }
    }

    private static func isBlank(_ line: [UInt8]) -> Bool { line.allSatisfy { $0 <= 0x20 } }
}
