import EarshotWire
import Testing

@testable import EarshotCore

struct ChildFailureTests {
    private let failure = ChildFailure(
        role: "worker", deaths: 7, since: "2026-11-21T08:54:38Z", lastEnd: "exit code 1")

    @Test func `a line says all of a failure`() {
        #expect(failure.line == "worker 7 2026-11-21T08:54:38Z exit code 1")
        #expect(ChildFailure(line: failure.line) == failure)
    }

    @Test func `who asks for the workers or the status is told of failures`() {
        var rig = CoreRig()
        let a = rig.client(1)
        for failures in [[], [failure]] {
            rig.core.childFailures = failures
            for query in [Query.workers, .status] {
                rig.pass { $0.say(.query(query), by: a) }
                let told = failures.map { _ in
                    #"{"role":"worker","deaths":7,"last-end":"exit code 1","since":"2026-11-21T08:54:38Z"}"#
                }
                let answers = rig.actions.compactMap { action in
                    if case .answer(_, query, let json) = action { String(decoding: json, as: UTF8.self) } else { nil }
                }
                #expect(answers.count == 1)
                #expect(answers.first?.contains(#""failing":[\#(told.joined())]"#) == true, "\(answers)")
            }
        }
    }

    @Test func `workers count as taken in from their READY to their end`() {
        var rig = CoreRig()
        #expect(rig.core.workersTakenIn == 0)
        let first = rig.worker(1)
        _ = rig.worker(2)
        #expect(rig.core.workersTakenIn == 2)
        rig.core.workerLost(first, now: rig.now)
        #expect(rig.core.workersTakenIn == 1)
    }

    @Test(arguments: ["", "worker", "worker 7 2026-11-21T08:54:38Z", "worker many 2026-11-21T08:54:38Z signal 9"])
    func `what says less is no failure`(line: String) {
        #expect(ChildFailure(line: line) == nil)
    }
}
