internal import ArgumentParser
internal import EarshotSimulation

/// `earshot-lab durable`: simulates durable requests with brokers that are killed.
struct DurableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "durable",
        abstract: "Kill brokers in a simulated world, and check that durable requests outlive them.")

    @Option(help: "The first run's seed; the following ones count up from it.")
    var seed: UInt64 = 1

    @Option(help: "Steps of each run.")
    var steps = 100_000

    @Option(help: "Runs.")
    var runs = 1

    @Option(help: "Break the disk on purpose: \(DurableCanary.allCases.map(\.rawValue).joined(separator: ", ")).")
    var canary: String?

    mutating func validate() throws {
        guard steps > 0, runs > 0 else { throw ValidationError("steps and runs are at least 1") }
        if let canary, DurableCanary(rawValue: canary) == nil {
            throw ValidationError("no canary is called \(canary)")
        }
    }

    func run() throws {
        for seed in seed..<seed + UInt64(runs) {
            do throws(Failure) {
                let report = try DurableSimulation.run(
                    seed: seed, steps: steps, canary: canary.flatMap(DurableCanary.init))
                print(
                    "seed \(seed): \(steps) steps, \(report.restarts) kills, \(report.acceptedRequests) accepted, \(report.retriedFailures) repeated, \(report.claimedResults) claimed at the end: each promise was kept"
                )
            } catch {
                print("seed \(seed), step \(error.step): \(error.violation)")
                throw ExitCode(1)
            }
        }
    }
}
