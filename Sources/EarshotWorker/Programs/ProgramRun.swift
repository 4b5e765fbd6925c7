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
    private let childProcess: ChildProcess
    private let contentType: String?
    private var standardOutput: ProgramPipe?
    private var standardError: ProgramPipe?
    private var childRegistration: EventLoop.Registration?
    private var body: IncomingBody
    private var lastErrorLine = LastLine()

    /// Starts the program.
    ///
    /// - Parameter ready: Called when the program has written output or exited.
    init(
        job: Job, input: [UInt8]?, options: ProgramOptions, terms: Terms, jobs: RunTable<ProgramRun>,
        ready: @escaping () -> Void
    ) throws(SystemError) {
        self.job = job
        self.terms = terms
        self.jobs = jobs
        let loop = jobs.loop
        state = RunState(now: loop.now)
        contentType = options.contentType
        body = IncomingBody(
            of: job.attempt, terms, maximumBodyBytes: min(job.maximumBodyBytes ?? .max, terms.maximumBodyBytes))
        let outputPipe = try InheritedPipe.make()
        defer { close(outputPipe.writer) }
        standardOutput = try ProgramPipe(descriptor: outputPipe.reader, loop: loop, readable: ready)
        let errorPipe = try InheritedPipe.make()
        defer { close(errorPipe.writer) }
        standardError = try ProgramPipe(descriptor: errorPipe.reader, loop: loop, readable: ready)
        childProcess = try Self.startProcess(
            job, input: input, options: options, output: outputPipe.writer, errors: errorPipe.writer)
        do throws(SystemError) {
            childRegistration = try loop.add(childProcess.descriptor, .readable) { _ in ready() }
        } catch {
            childProcess.killAndReap()
            throw error
        }
    }

    deinit { if let childRegistration { jobs.loop.remove(childRegistration) } }

    private static func startProcess(
        _ job: Job, input: [UInt8]?, options: ProgramOptions, output: Int32, errors: Int32
    ) throws(SystemError) -> ChildProcess {
        var streams = ChildProcess.Streams(output: output, errorOutput: errors)
        if let input { streams.input = try InheritedPipe.makeUnnamedFile(containing: input) }
        defer { if let file = streams.input { close(file) } }
        var variables = options.environmentVariables
        variables["EARSHOT_URL"] = job.url
        variables["EARSHOT_METHOD"] = job.method
        variables["EARSHOT_PRIORITY"] = job.priority.name
        variables["EARSHOT_HEADERS"] = String(decoding: job.httpFields, as: UTF8.self)
        variables["EARSHOT_MAX_BYTES"] = job.maximumBodyBytes.map { String($0) } ?? ""
        return try ChildProcess.spawn(
            options.program, options.arguments + [job.url], streams: streams, variables: variables)
    }

    // MARK: Output and exit

    /// Reads the program's output, within a budget per call, and records its exit.
    ///
    /// - Returns: Whether more output may be available.
    func readOutputAndExit(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        readErrors(into: &buffer)
        let isMore = try readOutput(into: &buffer)
        guard !isAwaitingBodyHash else { return false }
        guard hasExited else { return isMore }
        // Descendants of the program must not outlive it. Until it is reaped, its process ID cannot be reused as a
        // group ID.
        childProcess.sendSignalToGroup(SIGKILL)
        guard let exit = childProcess.reap() else { return isMore }
        if let childRegistration { jobs.loop.remove(childRegistration) }
        childRegistration = nil
        defer {
            readErrors(into: &buffer)
            standardOutput = nil
            standardError = nil
            if case .stopping(let reason) = phase {
                phase = .ended(reason)
            } else {
                phase = .ended(Refusal(exit, lastErrorLine: lastErrorLine.sanitizedText))
            }
        }
        // The pipes now contain all output of the group. Later output of a process that left the group is ignored.
        for _ in 0..<Limits.readRoundsAfterProgramExit {
            guard try readOutput(into: &buffer) else { break }
        }
        return false
    }

    private var hasExited: Bool {
        var entry = pollfd(fd: childProcess.descriptor, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&entry, 1, 0) > 0
    }

    private func readErrors(into buffer: inout [UInt8]) {
        for _ in 0..<Limits.programReadsPerPass {
            guard let piece = standardError?.read(into: &buffer) else { return }
            switch piece {
            case .byteCount(let count): lastErrorLine.append(buffer.span.extracting(0..<count))
            case .noDataYet: return
            case .endOfStream:
                standardError = nil
                return
            }
        }
    }

    private func readOutput(into buffer: inout [UInt8]) throws(Refusal) -> Bool {
        for _ in 0..<Limits.programReadsPerPass {
            guard let piece = standardOutput?.read(into: &buffer) else { return false }
            switch piece {
            case .byteCount(let count): try receiveOutput(buffer.span.extracting(0..<count))
            case .noDataYet: return false
            case .endOfStream:
                standardOutput = nil
                return false
            }
        }
        return true
    }

    private func receiveOutput(_ bytes: Span<UInt8>) throws(Refusal) {
        // A HEAD request only checks whether the resource exists.
        guard job.method != "HEAD" else { return }
        scheduleProgress()
        do throws(IncomingBody.Fault) {
            try body.append(bytes)
        } catch {
            throw Refusal(bodyFault: error)
        }
    }

    // MARK: The job

    var receivedBytes: Int { body.count }
    var isAwaitingBodyHash: Bool { if case .ended = phase { true } else { false } }
    var isBodyHashed: Bool { body.isHashed }

    func raiseMaximumBodyBytes(to maximum: Int?) {
        body.raiseMaximumBodyBytes(to: min(maximum ?? .max, terms.maximumBodyBytes))
    }

    func startHashing(on hasher: PartHasher) throws(SystemError) {
        try body.startHashing(on: hasher, isLast: isAwaitingBodyHash)
    }

    func receiveHash(from task: PartHasher.Task) -> Bool { body.receiveHash(from: task, now: jobs.loop.now) }

    func makeProgressMessage() -> WorkerMessage {
        if job.streams { body.moveToFile() }
        let part = body.fileName.map { BodyPart(fileName: $0) }
        return .progress(job.attempt, received: receivedBytes, total: nil, part: part)
    }

    /// Sends SIGTERM to a running program, and kills it after the grace period.
    func stop(because reason: Refusal) -> Bool {
        guard case .running = phase else { return isAwaitingBodyHash }
        phase = .stopping(reason)
        state.isOver = true
        body.discard()
        standardOutput = nil
        childProcess.sendSignalToGroup(SIGTERM)
        state.timeLimitTimer = jobs.loop.setTimer(after: Limits.programExitGrace) { [childProcess] in
            childProcess.sendSignalToGroup(SIGKILL)
        }
        return false
    }

    func makeCompletion() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        if case .ended(let refusal?) = phase { throw refusal }
        var completion = Completion(attempt: job.attempt, status: 200)
        if let contentType { completion.httpFields = Array("content-type: \(contentType)".utf8) }
        let bytes = try body.finish(into: &completion)
        return (completion, bytes)
    }

    /// Kills the program if it still runs.
    func release() {
        body.discard()
        childProcess.sendSignalToGroup(SIGKILL)
    }
}

extension Refusal {
    /// Creates the failure of a job whose program exited by itself; nil if it succeeded. Exit codes of curl keep their
    /// meaning: `earshot get` uses them too, so a script can pass on the code it got. All others are `worker-failed`.
    ///
    /// - Parameter lastErrorLine: Last line of the program's standard error; empty for none.
    init?(_ exit: ChildProcess.Exit, lastErrorLine: String) {
        let code: FailureCode
        switch exit {
        case .code(0): return nil
        case .code(3): code = .malformedURL
        case .code(6): code = .unknownHost
        case .code(7): code = .connectFailed
        case .code(18): code = .truncated
        case .code(28): code = .timeout
        case .code(56): code = .connectionReset
        case .code(60): code = .tls
        case .code(63): code = .tooLarge
        case .code, .signal: code = .workerFailed
        }
        self.init(code, lastErrorLine.isEmpty ? "The program ended with \(exit)." : lastErrorLine)
    }
}

/// The last non-blank line of a stream, in bounded memory.
struct LastLine {
    private var lastCompleteLine: [UInt8] = []
    private var currentLine: [UInt8] = []

    /// Sanitized text for a message; empty without such a line.
    var sanitizedText: String {
        Printable.sanitizedSentence(
            String(decoding: Self.isBlank(currentLine) ? lastCompleteLine : currentLine, as: UTF8.self))
    }

    mutating func append(_ bytes: Span<UInt8>) {
        for index in bytes.indices {
            let byte = bytes[index]
            if byte == UInt8(ascii: "\n") {
                if !Self.isBlank(currentLine) { lastCompleteLine = currentLine }
                currentLine.removeAll(keepingCapacity: true)
            } else if currentLine.count < Limits.sentenceBytes {
                currentLine.append(byte)
            }
        }
    }

    private static func isBlank(_ line: [UInt8]) -> Bool { line.allSatisfy { $0 <= 0x20 } }
}

/// Non-blocking read end of a program's output, for `ProgramRun`.
struct ProgramPipe: ~Copyable {
    /// Result of one read.
    enum Piece: Equatable {
        /// Number of bytes in the buffer.
        case byteCount(Int)
        case noDataYet
        case endOfStream
    }

    let descriptor: Int32
    private let registration: EventLoop.Registration
    private let loop: EventLoop

    /// - Parameters:
    ///   - descriptor: Closed with this object, and also if the initializer throws.
    ///   - readable: Called in each pass in which the pipe is readable.
    init(descriptor: Int32, loop: EventLoop, readable: @escaping () -> Void) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        do throws(SystemError) {
            registration = try loop.add(descriptor, .readable) { _ in readable() }
        } catch {
            close(descriptor)
            throw error
        }
    }

    deinit {
        loop.remove(registration)
        close(descriptor)
    }

    func read(into buffer: inout [UInt8]) -> Piece {
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count > 0 { return .byteCount(count) }
            if count == 0 { return .endOfStream }
            switch errno {
            case EINTR: continue
            case EAGAIN: return .noDataYet
            default: return .endOfStream
            }
        }
    }
}
