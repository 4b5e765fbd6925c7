import EarshotWire
import Testing

@testable import EarshotCore

/// Facts that the supervisor and the shell report, in the answers to QUERY.
struct ChildFailureTests {
    private let failure = ChildCrashLoop(
        childRole: "worker", consecutiveDeathCount: 7, firstDeathAt: "2026-11-21T08:54:38Z",
        lastExitDescription: "exit code 1")

    @Test func `a line says all of a failure`() {
        #expect(failure.supervisorLine == "worker 7 2026-11-21T08:54:38Z exit code 1")
        #expect(ChildCrashLoop(supervisorLine: failure.supervisorLine) == failure)
    }

    @Test func `who asks for the workers or the status is told of failures`() {
        var rig = CoreRig()
        let a = rig.client(1)
        for failures in [[], [failure]] {
            rig.core.childFailures = failures
            for query in [Query.workers, .status] {
                rig.pass { $0.send(.query(query), by: a) }
                let reported = failures.map { _ in
                    #"{"role":"worker","deaths":7,"last-end":"exit code 1","since":"2026-11-21T08:54:38Z"}"#
                }
                let answers = rig.actions.compactMap { action in
                    if case .client(.answerQuery(_, query, let json)) = action {
                        String(decoding: json, as: UTF8.self)
                    } else {
                        nil
                    }
                }
                #expect(answers.count == 1)
                #expect(answers.first?.contains(#""failing":[\#(reported.joined())]"#) == true, "\(answers)")
            }
        }
    }

    @Test func `who asks for the status is told of lost places`() {
        var rig = CoreRig()
        let a = rig.client(1)
        rig.core.pathFaults = [
            PathFailure(
                pathRole: "spool", path: "/s", lossCount: 2, lastDetectedAt: "2026-11-21T08:54:38Z", failureReason: nil),
            PathFailure(
                pathRole: "bus", path: "/b", lossCount: 1, lastDetectedAt: "2026-11-21T08:54:38Z", failureReason: "why"),
        ]
        rig.pass { $0.send(.query(.status), by: a) }
        let reported =
            #""faults":[{"place":"spool","path":"/s","state":"restored","count":2,"last":"2026-11-21T08:54:38Z"},"#
            + #"{"place":"bus","path":"/b","state":"lost","count":1,"last":"2026-11-21T08:54:38Z","reason":"why"}]"#
        let answers = statuses(of: rig)
        #expect(answers.count == 1 && answers.first?.contains(reported) == true, "\(answers)")
    }

    /// Answers to `QUERY status` in the last pass.
    private func statuses(of rig: CoreRig) -> [String] {
        rig.actions.compactMap { action in
            guard case .client(.answerQuery(_, .status, let json)) = action else { return nil }
            return String(decoding: json, as: UTF8.self)
        }
    }

    @Test func `the broker is ready with a worker, open admission and without a lost place until it drains`() throws {
        var rig = CoreRig()
        let a = rig.client(1)
        func isReady() -> Bool {
            rig.pass { $0.send(.query(.status), by: a) }
            return statuses(of: rig).contains { $0.contains(#""ready":true"#) }
        }
        #expect(!isReady())
        let worker = rig.worker(1)
        #expect(isReady())
        rig.core.pathFaults = [
            PathFailure(pathRole: "spool", path: "/s", lossCount: 1, lastDetectedAt: "-", failureReason: "read-only")
        ]
        #expect(!isReady())
        rig.core.pathFaults[0].failureReason = nil
        #expect(isReady())
        rig.core.workerLost(worker, now: rig.now)
        #expect(!isReady())
        _ = rig.worker(1)
        #expect(isReady())
        for (value, expected) in [("closed", false), ("open", true)] {
            let words = try #require(SettingWords(["admission", value]))
            rig.pass { $0.send(.changeSetting(words), by: a) }
            #expect(isReady() == expected)
            #expect(statuses(of: rig).contains { $0.contains(#""admission":"\#(value)""#) })
        }
        rig.core.beginDraining()
        #expect(!isReady())
    }

    @Test func `each worker is told where the spool is once it is another folder`() {
        var rig = CoreRig()
        let worker = rig.worker(1)
        rig.pass { $0.core.spoolFolderReplaced() }
        let reported = rig.actions.count { action in
            if case .worker(.send(worker, .limits)) = action { true } else { false }
        }
        #expect(reported == 1, "\(rig.actions)")
    }

    @Test func `workers count as taken in from their READY to their end`() {
        var rig = CoreRig()
        #expect(rig.core.acceptingWorkerCount == 0)
        let first = rig.worker(1)
        _ = rig.worker(2)
        #expect(rig.core.acceptingWorkerCount == 2)
        rig.core.workerLost(first, now: rig.now)
        #expect(rig.core.acceptingWorkerCount == 1)
    }

    @Test(arguments: ["", "worker", "worker 7 2026-11-21T08:54:38Z", "worker many 2026-11-21T08:54:38Z signal 9"])
    func `what says less is no failure`(line: String) {
        #expect(ChildCrashLoop(supervisorLine: line) == nil)
    }
}
