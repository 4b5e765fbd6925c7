internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Runs of the program that the configuration names in `on-complete`: one for each request that ends on the bus.
///
/// The broker sends only facts, so a program gets no file and delays no result. The number of waiting runs is bounded; beyond
/// it a request ends without a run.
final class BusHooks {
    /// Maximum number of programs that run or wait: four seconds of programs that take 15 ms.
    static let mostPrograms = 1_024

    private let loop: EventLoop
    private let log: ServiceLog
    private var program: HookProgram?
    private var runs: HookRuns?
    /// Runs of earlier configurations that have not ended.
    private var earlierRuns: [HookRuns] = []
    /// Requests that ended without a run since a run last had room.
    private(set) var dropped = 0

    init(_ program: HookProgram?, _ loop: EventLoop, _ log: ServiceLog) {
        self.loop = loop
        self.log = log
        change(program)
    }

    var isOn: Bool { runs != nil }

    /// Line that tells the broker whether to report ends.
    var word: String { isOn ? SupervisorCommand.reportEnds : SupervisorCommand.ignoreEnds }

    /// Number of programs that run or wait.
    var count: Int { earlierRuns.reduce(runs?.count ?? 0) { $0 + $1.count } }

    /// Uses another program for requests that end later, or none.
    func change(_ program: HookProgram?) {
        guard program != self.program else { return }
        self.program = program
        earlierRuns = (earlierRuns + [runs].compactMap(\.self)).filter { $0.count > 0 }
        runs = program.map { program in
            HookRuns(program, loop) { [log] in log.write(.warning, "on-complete: \($0)") }
        }
    }

    /// Runs the program for a request, now or later.
    func add(_ ended: EndedRequest) {
        guard let runs else { return }
        guard count < Self.mostPrograms else {
            dropped += 1
            if dropped == 1 {
                log.write(
                    .warning, "on-complete: \(Self.mostPrograms) programs run or wait; further requests end without one"
                )
            }
            return
        }
        let key = RequestKey(ended.handler, ended.request)
        runs.add(FetchOutcome(ended), key, of: ended.principal) { [weak self] in self?.runEnded() }
    }

    private func runEnded() {
        guard dropped > 0, count < Self.mostPrograms else { return }
        log.write(.warning, "on-complete: no program ran for \(dropped) requests", [("dropped", "\(dropped)")])
        dropped = 0
    }
}

extension FetchOutcome {
    /// Outcome of a request of the bus, without its body.
    init(_ ended: EndedRequest) {
        self.init(url: ended.url ?? "-", status: ended.status, code: ended.failure)
        guard let url = ended.url else { return }
        var response = Terminal.Response(url: url)
        response.length = ended.length ?? 0
        response.sha256 = ended.sha256
        self.response = response
    }
}
