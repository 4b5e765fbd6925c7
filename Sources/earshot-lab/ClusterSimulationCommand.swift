internal import ArgumentParser
internal import EarshotSimulation

/// `earshot-lab cluster`: simulates nodes of a cluster and their engine.
struct ClusterSimulationCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cluster", abstract: "Simulate several brokers that coordinate through one engine, with faults.")

    @Option(help: "The first run's seed; the following ones count up from it.")
    var seed: UInt64 = 1

    @Option(help: "Steps of each run.")
    var steps = 100_000

    @Option(help: "Runs.")
    var runs = 1

    @Option(help: "Number of nodes; by default 3 to 7, by the seed.")
    var nodes: Int?

    @Option(help: "Add a deliberate fault: \(ClusterCanary.allCases.map(\.rawValue).joined(separator: ", ")).")
    var canary: String?

    @Option(
        help:
            "Exclude a fault; may be repeated: \(ClusterFault.allCases.map(\.rawValue).joined(separator: ", "))."
    )
    var without: [String] = []

    @Option(help: "Maximum number of printed lines before a failure.")
    var history = 40

    @Option(help: "Number of steps before a failure that are traced.")
    var trace = 4_000

    @Option(help: "Print only lines with this text.")
    var filter: String?

    mutating func validate() throws {
        guard steps > 0, runs > 0, history >= 0 else { throw ValidationError("steps and runs are at least 1") }
        guard nodes.map({ (2...64).contains($0) }) ?? true else { throw ValidationError("nodes are 2 to 64") }
        if let canary, ClusterCanary(rawValue: canary) == nil {
            throw ValidationError("no canary is called \(canary)")
        }
        for fault in without where ClusterFault(rawValue: fault) == nil && fault != "all" {
            throw ValidationError("no fault is called \(fault)")
        }
    }

    func run() throws {
        for seed in seed..<seed + UInt64(runs) {
            var options = ClusterOptions(seed: seed, steps: steps)
            options.nodeCount = nodes
            options.tracedSteps = trace
            options.canary = canary.flatMap(ClusterCanary.init)
            options.excludedFaults =
                without.contains("all") ? Set(ClusterFault.allCases) : Set(without.compactMap(ClusterFault.init))
            do throws(ClusterFailure) {
                let report = try ClusterSimulation.run(options)
                print(
                    "seed \(seed): \(steps) steps, \(report.nodeCount) nodes, \(report.fakeSeconds) s, \(report.requestCount) requests, \(report.answeredRequests) answered, \(report.originFetches) fetches, \(report.pulledBodies) pulls, \(report.duplicateFetches) duplicates in windows, \(report.faults.values.reduce(0, +)) faults: every invariant held"
                )
            } catch {
                let lines = error.history.filter { filter.map($0.contains) ?? true }
                for line in lines.suffix(history) { print(line) }
                print("seed \(seed), step \(error.step), \(error.milliseconds) ms: \(error.violation)")
                throw ExitCode(1)
            }
        }
    }
}
