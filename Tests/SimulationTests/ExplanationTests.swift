import EarshotSimulation
import Testing

/// The explanation of a failure concerns that failure, not another one of the same invariant.
struct ExplanationTests {
    private static func failure(of canary: Canary) throws -> (SimulationOptions, Failure) {
        for seed in 1...40 as ClosedRange<UInt64> {
            var options = SimulationOptions(seed: seed, steps: 3_000)
            options.canary = canary
            do throws(Failure) {
                _ = try Simulation.run(options)
            } catch {
                return (options, error)
            }
        }
        throw Violation(0, "\(canary) was not caught")
    }

    /// `earshot-lab canaries` checks all canaries.
    @Test(arguments: [Canary.lostRedelivery, .duplicateAttempt, .wrongPriorityClass])
    func `a shrunk history ends in the disagreement that was found`(canary: Canary) throws {
        let (options, failure) = try Self.failure(of: canary)
        let explanation = Simulation.explain(failure, of: options, budget: 5_000)
        for found in [explanation.violation, explanation.failure.violation] {
            #expect(found.invariant == failure.violation.invariant)
            #expect(found.kind == failure.violation.kind, "\(failure.violation)\n\(explanation)")
        }
    }

    @Test func `an explanation tells of the names that its history has`() throws {
        let (options, failure) = try Self.failure(of: .duplicateTerminal)
        let explanation = Simulation.explain(failure, of: options, budget: 30_000)
        #expect(explanation.history.count <= 12, "\(explanation)")
        let lines = explanation.description.split(separator: "\n")
        #expect(lines.last.map(String.init) == explanation.violation.description)
        // An unexpected terminal belongs to a request in the history.
        let name = try #require(explanation.violation.detail.firstMatch(of: /terminal of (\S+ \S+) that/)?.1)
        #expect(explanation.history.contains { "\($0.event)".contains("FETCH \(name) ") }, "\(explanation)")
    }

    @Test(arguments: [
        (
            "client 3 gets a terminal of r0/h1 q7 that is not due",
            "client 12 gets a terminal of single2 q0 that is not due"
        ),
        ("[f1, f22] are left", "[f3] are left"), ("", ""),
    ])
    func `a disagreement is the same under other names and numbers`(one: String, other: String) {
        #expect(Violation(1, one).isSame(as: Violation(1, other)))
        #expect(!Violation(1, one).isSame(as: Violation(2, other)))
    }

    @Test(arguments: [
        ("r0/h1 q7 is told spool-full, not a result", "r0/h1 q7 is told deadline, not a result"),
        ("client 3 is told 4", "client 3 is told none"),
    ])
    func `a disagreement about something else is another`(one: String, other: String) {
        #expect(!Violation(1, one).isSame(as: Violation(1, other)))
    }

    @Test func `one that names its kind is told by that`() {
        #expect(Violation(1, "a", kind: "k").isSame(as: Violation(1, "b", kind: "k")))
        #expect(!Violation(1, "a", kind: "k").isSame(as: Violation(1, "a", kind: "l")))
    }
}
