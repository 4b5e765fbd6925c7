internal import EarshotHTTP
internal import EarshotLoop
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
    private var buffer = [UInt8](repeating: 0, count: Limits.pieceBytes)

    /// - Parameter onServing: Called each time a broker has accepted the worker.
    init(
        _ options: ProgramOptions, loop: EventLoop, logger: Logger, onServing: @escaping () -> Void
    ) throws(SystemError) {
        self.options = options
        let tunnelFault = tunnelFault
        tunnel = options.makeTunnel?(loop) { error in
            tunnelFault.record(error)
            loop.passAgain()
        }
        let place = tunnel.map { BrokerLink.BrokerAddress.tunnel($0) } ?? .socket(options.workPath)
        jobs = try RunTable(BrokerLink(place, loop: loop, logger: logger), loop: loop, logger: logger)
        var ready = Ready(slots: options.slots)
        ready.schemes = options.schemes
        ready.acceptsDrain = true
        traits = WorkerTraits(
            ready: ready, onAccepted: onServing,
            refusal: { code, detail in
                guard ["limit", "not-a-child", "not-authorized", "version"].contains(code) else { return nil }
                return "the broker does not take this worker: \(detail) (\(code))"
            })
    }

    func start(_ job: Job, _ body: [UInt8]?, _ terms: Terms) throws(Refusal) {
        do throws(SystemError) {
            let run = try ProgramRun(job, body, options, terms, jobs) { [weak self] in
                self?.attemptsWithEvents.insert(job.attempt)
            }
            jobs.add(run)
        } catch {
            jobs.logger.error("cannot start the program", metadata: ["error": "\(error)"])
            // Without descriptors or processes a retry may succeed.
            let isTransient = [EMFILE, ENFILE, EAGAIN, ENOMEM].contains(error.number)
            throw Refusal(
                isTransient ? .connectFailed : .workerFailed, "The program cannot be started: \(error).")
        }
    }

    /// Reads the output of programs, and concludes their jobs after their exit.
    func work() throws -> Bool {
        if let fault = tunnelFault.fault { throw fault }
        let ready = attemptsWithEvents
        attemptsWithEvents = []
        for attempt in ready {
            guard let run = jobs.runs[attempt] else { continue }
            do throws(Refusal) {
                if try run.take(into: &buffer) { attemptsWithEvents.insert(attempt) }
                jobs.hashOn(run)
            } catch {
                jobs.end(run, error)
                // The exit may already be visible.
                attemptsWithEvents.insert(attempt)
            }
        }
        return !attemptsWithEvents.isEmpty
    }

    func finish() { tunnel?.close() }
}
