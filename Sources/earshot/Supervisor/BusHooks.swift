internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Runs of the program that the configuration names in `on-complete`: one for each request that ends on the bus.
///
/// The broker sends only facts, so a program gets no file and delays no result. The number of waiting runs is bounded;
/// beyond it a request ends without a run.
final class BusHooks {
    /// Maximum number of programs that run or wait: four seconds of programs that take 15 ms.
    static let maximumPrograms = 1_024

    private let loop: EventLoop
    private let log: ServiceLog
    private var program: HookProgram?
    private var currentRuns: HookRuns?
    /// Runs of earlier configurations that have not ended.
    private var earlierRuns: [HookRuns] = []
    /// Requests that ended without a run since a run last had room.
    private(set) var droppedRunCount = 0

    init(_ program: HookProgram?, _ loop: EventLoop, _ log: ServiceLog) {
        self.loop = loop
        self.log = log
        replaceProgram(program)
    }

    var isEnabled: Bool { currentRuns != nil }

    /// Line that starts or stops the broker's reports of ended requests.
    var reportingCommand: String {
        isEnabled ? SupervisorCommand.startReportingRequestEnds : SupervisorCommand.stopReportingRequestEnds
    }

    /// Number of programs that run or wait.
    var count: Int { earlierRuns.reduce(currentRuns?.count ?? 0) { $0 + $1.count } }

    /// Uses another program for requests that end later, or none.
    func replaceProgram(_ program: HookProgram?) {
        guard program != self.program else { return }
        self.program = program
        earlierRuns = (earlierRuns + [currentRuns].compactMap(\.self)).filter { $0.count > 0 }
        currentRuns = program.map { program in
            HookRuns(program, loop) { [log] in log.write(.warning, "on-complete: \($0)") }
        }
    }

    /// Runs the program for a request, now or later.
    func enqueueRun(for ended: EndedRequest) {
        guard let currentRuns else { return }
        guard count < Self.maximumPrograms else {
            droppedRunCount += 1
            if droppedRunCount == 1 {
                let limit = Self.maximumPrograms
                log.write(.warning, "on-complete: \(limit) programs run or wait; further requests end without one")
            }
            return
        }
        let key = RequestKey(ended.handler, ended.request)
        currentRuns.enqueue(FetchOutcome(ended), key, of: ended.principal) { [weak self] in self?.runEnded() }
    }

    private func runEnded() {
        guard droppedRunCount > 0, count < Self.maximumPrograms else { return }
        log.write(
            .warning, "on-complete: no program ran for \(droppedRunCount) requests",
            [("dropped", "\(droppedRunCount)")])
        droppedRunCount = 0
    }
}

extension FetchOutcome {
    /// Outcome of a request of the bus, without its body.
    init(_ ended: EndedRequest) {
        self.init(url: ended.url ?? "-", status: ended.status, code: ended.failure)
        guard let url = ended.url else { return }
        var response = Terminal.Response(url: url)
        response.bodyByteCount = ended.bodyLength ?? 0
        response.sha256 = ended.sha256
        self.response = response
    }
}
