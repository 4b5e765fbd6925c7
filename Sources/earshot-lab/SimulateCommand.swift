internal import ArgumentParser
internal import EarshotCore
internal import EarshotSimulation

/// `earshot-lab simulate`: runs of the simulated world, checked by the reference model.
struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate", abstract: "Run the core in a simulated world and check its invariants.")

    @Option(help: "The first run's seed; the following ones count up from it.")
    var seed: UInt64 = 1

    @Option(help: "Events the core is told in each run.")
    var steps = 100_000

    @Option(help: "Runs.")
    var runs = 1

    @Option(help: "Handlers clients choose from.")
    var handlers = 200

    @Option(help: "URLs clients choose from.")
    var keys = 100

    @Option(help: "Break the core on purpose: \(Canary.allCases.map(\.rawValue).joined(separator: ", ")).")
    var canary: String?

    @Option(help: "Faults to switch off: \(Fault.allCases.map(\.rawValue).joined(separator: ", ")).")
    var without: [String] = []

    @Option(help: "Events to tell cores in search of a shorter history of a failure.")
    var budget = 10_000_000

    mutating func validate() throws {
        guard steps > 0, runs > 0, handlers >= 10, keys >= 10 else {
            throw ValidationError("steps and runs are at least 1, handlers and keys at least 10")
        }
        if let canary, Canary(rawValue: canary) == nil { throw ValidationError("no canary is called \(canary)") }
        for name in without where Fault(rawValue: name) == nil { throw ValidationError("no fault is called \(name)") }
    }

    func run() throws {
        for run in 0..<UInt64(runs) { try runOnce(seed: seed &+ run) }
    }

    private func runOnce(seed: UInt64) throws {
        var options = SimulationOptions(seed: seed, steps: steps)
        options.handlerCount = handlers
        options.keyCount = keys
        options.canary = canary.flatMap(Canary.init)
        options.excludedFaults = Set(without.compactMap(Fault.init))
        let clock = ContinuousClock()
        let start = clock.now
        do throws(Failure) {
            let report = try Simulation.run(options)
            let rate = Int(Double(report.steps) / ((clock.now - start) / .seconds(1)))
            print(
                "seed \(seed): \(report.steps) steps, \(report.fakeSeconds) s of theirs, \(rate) steps/s: all invariants hold"
            )
            print(reportText(report))
        } catch {
            print("seed \(seed), step \(error.step): \(error.violation)")
            print("again: bin/simulate \(arguments(seed: seed))")
            print(Simulation.explain(error, of: options, budget: budget))
            throw ExitCode(1)
        }
    }

    /// Returns the arguments that reproduce the run.
    private func arguments(seed: UInt64) -> String {
        let named = without.map { " --without \($0)" } + (canary.map { [" --canary \($0)"] } ?? [])
        return "--seed \(seed) --steps \(steps) --handlers \(handlers) --keys \(keys)" + named.joined()
    }

    private func reportText(_ report: Report) -> String {
        let requests = report.ledger.requests
        let flights = report.ledger.flights
        let lives = report.earlierLedgers + [report.ledger]
        return """
              \(lives.count) brokers, which assigned \(lives.reduce(0) { $0 + $1.flights.assignedAttempts }) attempts; of the \
            last one:
              requests: \(requests.submitted) submitted, \(requests.answered) answered, \(requests.failedCount) failed, \
            \(requests.removed) removed, \(requests.orphaned) orphaned
              flights: \(flights.started) started, \(flights.joinedRequests) joined, \(flights.assignedAttempts) attempts, \
            \(flights.cancelled) cancelled, \(flights.retriedAttempts) retried, \(flights.lostAttempts) lost, \(flights.staleCompletions) stale
            """
    }
}
