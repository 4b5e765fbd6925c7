internal import EarshotHTTP
public import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// Jobs of a user's own schemes: one process of a program for each.
///
/// The URL is the program's last argument, the request's body its standard input, and its standard output the response.
final class Programs: JobKind {
    let jobs: RunTable<ProgramRun>
    let traits: WorkerTraits
    private let options: ProgramOptions
    /// Way to a broker on another machine; nil for a broker of this machine.
    private let tunnel: (any BrokerTunnel)?
    private let tunnelFault = FaultRecord()
    /// Attempts whose programs have written output or exited.
    private var attemptsWithEvents: Set<AttemptID> = []
    private var buffer = [UInt8](repeating: 0, count: Limits.programReadBytes)

    /// - Parameter onServing: Called each time a broker has accepted the worker.
    init(
        _ options: ProgramOptions, loop: EventLoop, logger: Logger, onServing: @escaping () -> Void
    ) throws(SystemError) {
        self.options = options
        let tunnelFault = tunnelFault
        tunnel = options.makeTunnel?(loop) { error in
            tunnelFault.recordFirstFault(error)
            loop.requestAnotherPass()
        }
        let address = tunnel.map { BrokerLink.BrokerAddress.tunnel($0) } ?? .unixSocket(options.workPath)
        jobs = try RunTable(BrokerLink(address, loop: loop, logger: logger), loop: loop, logger: logger)
        var ready = Ready(slots: options.slots)
        ready.schemes = options.schemes
        ready.acceptsDrain = true
        traits = WorkerTraits(
            readyMessage: ready, onBrokerAccepted: onServing,
            refusalSentence: { code, detail in
                guard ["limit", "not-a-child", "not-authorized", "version"].contains(code) else { return nil }
                return "the broker does not take this worker: \(detail) (\(code))"
            })
    }

    func start(_ job: Job, body: [UInt8]?, terms: Terms) throws(Refusal) {
        do throws(SystemError) {
            let run = try ProgramRun(job: job, input: body, options: options, terms: terms, jobs: jobs) { [weak self] in
                self?.attemptsWithEvents.insert(job.attempt)
            }
            jobs.add(run)
        } catch {
            jobs.logger.error("cannot start the program", metadata: ["error": "\(error)"])
            // Without descriptors or processes a retry may succeed.
            let isTransient = [EMFILE, ENFILE, EAGAIN, ENOMEM].contains(error.number)
            throw Refusal(isTransient ? .connectFailed : .workerFailed, "The program cannot be started: \(error).")
        }
    }

    /// Reads the output of programs, and concludes their jobs after their exit.
    func handlePassEvents() throws -> Bool {
        if let fault = tunnelFault.firstFault { throw fault }
        let ready = attemptsWithEvents
        attemptsWithEvents = []
        for attempt in ready {
            guard let run = jobs.runs[attempt] else { continue }
            do throws(Refusal) {
                if try run.readOutputAndExit(into: &buffer) { attemptsWithEvents.insert(attempt) }
                jobs.continueHashing(run)
            } catch {
                jobs.end(run, because: error)
                // The exit may already be visible.
                attemptsWithEvents.insert(attempt)
            }
        }
        return !attemptsWithEvents.isEmpty
    }

    func flushLastMessages() { tunnel?.close() }
}

/// Start options of a worker that runs a program for each job, which the command `work` makes.
public struct ProgramOptions: Sendable {
    /// Maximum number of concurrent jobs, for which the default limit of descriptors, 1,024, suffices.
    public static let maximumSlots = 200

    /// Returns the number of descriptors for so many jobs: four each, and those of the loop, the broker and the log.
    static func requiredDescriptors(slots: Int) -> Int { 16 + 4 * slots }

    /// Returns the number of jobs for which the descriptors suffice.
    static func supportedSlots(descriptors: Int) -> Int { (descriptors - 16) / 4 }

    /// Makes the way to a broker on another machine, and reports the error that ends it.
    public typealias MakeTunnel = @Sendable (EventLoop, _ onFailure: @escaping (any Error) -> Void) -> any BrokerTunnel

    /// Path of the broker's socket `work`; unused with `makeTunnel`.
    public var workPath: String
    /// Nil for a broker of this machine.
    public var makeTunnel: MakeTunnel?
    /// Schemes to serve, 1 to 16; see `Ready.isScheme`.
    public var schemes: [String]
    /// Number of concurrent jobs, 1 to `maximumSlots`.
    public var slots: Int
    /// Path of the program.
    public var program: String
    /// Argument vector, starting with the program's name. The URL is appended.
    public var arguments: [String]
    /// Environment variables added to those of this process.
    public var environmentVariables: [String: String] = [:]
    /// Content type of each body; nil for none.
    public var contentType: String?

    public init(workPath: String, schemes: [String], slots: Int, program: String, arguments: [String]) {
        self.workPath = workPath
        self.schemes = schemes
        self.slots = slots
        self.program = program
        self.arguments = arguments
    }
}

/// Way of a worker to a broker on another machine.
public protocol BrokerTunnel: AnyObject {
    /// Returns a new socket at whose other end a broker answers. The worker closes it.
    func connectWorker() throws(SystemError) -> Int32
    /// Handles the acceptance of the worker by a broker.
    func workerAccepted()
    /// Sends the last messages of the worker. The loop must not run.
    func close()
}
