import EarshotCore
import Testing

@testable import EarshotBroker

@Suite("Ends of workers that this process and the supervisor notice")
struct WorkerProcessesTests {
    private let first = WorkerID(rawValue: 1)
    private let second = WorkerID(rawValue: 2)
    private let end = WorkerExit(pid: 7, terminatingSignal: 9, wasKilledForMemory: false, wasKilledByBus: false)

    @Test("a process that was two workers ends both")
    func twoWorkersOfOneProcess() {
        var ends = WorkerProcesses()
        ends.awaitReport(on: first, pid: 7)
        ends.awaitReport(on: second, pid: 7)
        let reported = ends.recordReport(end)
        #expect(reported.workers == [first, second])
        #expect(reported.end == end)
    }

    @Test("each worker stops waiting for a report by itself")
    func testEnd() {
        var ends = WorkerProcesses()
        ends.awaitReport(on: first, pid: 7)
        ends.awaitReport(on: second, pid: 7)
        for (worker, isAwaited) in [(first, true), (first, false), (second, true)] {
            let abandonedAwait = ends.cancelAwaitedReport(on: worker, pid: 7)
            #expect(abandonedAwait == isAwaited)
        }
        let late = ends.recordReport(end)
        #expect(late.workers.isEmpty)
    }

    @Test("a report that came first is taken once, with what this broker did")
    func reportFirst() {
        var ends = WorkerProcesses()
        ends.recordKill(pid: 7)
        let early = ends.recordReport(end)
        #expect(early.workers.isEmpty)
        let taken = ends.takeReport(onPid: 7)
        #expect(taken?.wasKilledByBus == true)
        let again = ends.takeReport(onPid: 7)
        #expect(again == nil)
    }
}
