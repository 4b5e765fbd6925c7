import EarshotClient
import EarshotCore
import EarshotLoop
import EarshotWire
import Foundation
import Testing

@testable import earshot

/// Programs that a command or a bus runs for results.
@Suite struct HookTests {
    private let key: RequestKey
    private let folder = CommandFolder()

    init() throws {
        key = RequestKey(try #require(HandlerID("h/1")), try #require(RequestID("7")))
    }

    private func outcome(_ url: String, path: String? = nil) -> FetchOutcome {
        FetchOutcome(url: url, status: 200, path: path)
    }

    @Test func `spaces separate arguments, and only a whole one is replaced by the file`() throws {
        let program = try #require(HookProgram(argument: "tool  -x {} a{} $(b);c '{}'"))
        #expect(
            program.arguments(file: "out/-rf *") == ["tool", "-x", "out/-rf *", "a{}", "$(b);c", "'{}'"])
        #expect(program.arguments(file: nil)[2] == "")
        #expect(HookProgram(argument: "  ") == nil)
        #expect(HookProgram(argument: "{} x") == nil)
        #expect(throws: CommandError.self) {
            try #require(HookProgram(argument: "/no/such/tool")).resolvingPath()
        }
    }

    @Test func `the environment has the values of the result`() {
        let url = "http://h/--help;$(x)"
        #expect(
            HookRuns.environmentVariables(outcome(url, path: "out/a"), key) == [
                "EARSHOT_HANDLER": "h/1", "EARSHOT_REQUEST": "7", "EARSHOT_URL": url, "EARSHOT_STATE": "done",
                "EARSHOT_STATUS": "200", "EARSHOT_CAUSE": "", "EARSHOT_FILE": "out/a", "EARSHOT_LENGTH": "",
                "EARSHOT_SHA256": "",
            ])
        let failed = HookRuns.environmentVariables(FetchOutcome(url: "-", code: "reset", detail: "d"), key)
        #expect(failed["EARSHOT_STATE"] == "failed" && failed["EARSHOT_CAUSE"] == "reset")
        #expect(failed["EARSHOT_URL"] == "" && failed["EARSHOT_STATUS"] == "")
    }

    @Test func `beyond a bound requests of the bus end without a program, and later ones have one again`() throws {
        let loop = try EventLoop()
        let hooks = BusHooks(
            try #require(HookProgram(commandWords: ["true"])).resolvingPath(), loop, ServiceLog("serve", .text))
        #expect(hooks.reportingCommand == SupervisorCommand.startReportingRequestEnds)
        let ended = EndedRequest(handler: key.handler, request: key.request)
        // No program ends before the loop runs.
        for _ in 0..<BusHooks.maximumPrograms + 3 { hooks.enqueueRun(for: ended) }
        #expect(hooks.count == BusHooks.maximumPrograms && hooks.droppedRunCount == 3)
        try loop.run { hooks.droppedRunCount == 0 }
        hooks.enqueueRun(for: ended)
        #expect(hooks.droppedRunCount == 0, "there is room again")
        hooks.replaceProgram(nil)
        #expect(
            hooks.reportingCommand == SupervisorCommand.stopReportingRequestEnds && hooks.count > 0,
            "earlier ones go on")
        try loop.run { hooks.count == 0 }
    }

    @Test func `an end has the values of its line`() throws {
        var ended = EndedRequest(handler: key.handler, request: key.request)
        #expect(EndedRequest(line: ended.line) == ended)
        (ended.status, ended.failure, ended.bodyLength) = (404, "http-status", 9)
        (ended.sha256, ended.url) = (String(repeating: "a", count: 64), "http://h/a?b")
        #expect(EndedRequest(line: ended.line) == ended)
        let values = HookRuns.environmentVariables(FetchOutcome(ended), key)
        #expect(values["EARSHOT_LENGTH"] == "9" && values["EARSHOT_SHA256"] == ended.sha256)
        #expect(values["EARSHOT_STATUS"] == "404" && values["EARSHOT_FILE"] == "")
        ended.principal = PrincipalName("uid:33")
        #expect(EndedRequest(line: ended.line) == ended)
        #expect(
            HookRuns.environmentVariables(FetchOutcome(ended), key, of: ended.principal)["EARSHOT_PRINCIPAL"]
                == "uid:33")
        for line in [
            "", "ended", "ended //h 1 - - - - -", "ended a/b//h 1 - - - - -", "ended h 1", "ended h/ 1 - - - - -",
            ended.line + " x",
        ] {
            #expect(EndedRequest(line: line) == nil)
        }
    }

    @Test func `a program that hangs is killed, and one that fails is reported`() throws {
        let loop = try EventLoop()
        var (reports, ended): ([String], Int) = ([], 0)
        for (argument, timeout) in [("tail -f /dev/null", Duration.milliseconds(20)), ("false", .seconds(60))] {
            let program = try #require(HookProgram(argument: argument)).resolvingPath()
            let runs = HookRuns(program, loop, runTimeout: timeout) { reports.append($0) }
            runs.enqueue(outcome("http://h/a?secret"), key) { ended += 1 }
            try loop.run { runs.count == 0 }
        }
        #expect(ended == 2)
        #expect(
            reports == [
                "tail for http://h/a?... failed: it was killed after 0.02 seconds",
                "false for http://h/a?... failed: exit code 1",
            ])
    }

    @Test func `a bounded number of programs runs at once, and all run`() throws {
        let loop = try EventLoop()
        let gate = folder.path + "/gate"
        #expect(unsafe mkfifo(gate, 0o600) == 0)
        let program = try #require(HookProgram(argument: "touch {}")).resolvingPath()
        let blocked = try #require(HookProgram(argument: "cat \(gate)")).resolvingPath()
        let (runs, blocking) = (HookRuns(program, loop) { _ in }, HookRuns(blocked, loop) { _ in })
        var ended = 0
        for number in 0..<HookRuns.maximumConcurrentRuns + 3 {
            blocking.enqueue(outcome("u"), key) { ended += 1 }
            runs.enqueue(outcome("u", path: folder.path + "/\(number)"), key) {}
        }
        try loop.run { runs.count == 0 }
        #expect(try folder.names.count == HookRuns.maximumConcurrentRuns + 3 + 1)
        #expect(ended == 0 && blocking.count == HookRuns.maximumConcurrentRuns + 3)
        let children = blocking.processIDs
        #expect(children.count == HookRuns.maximumConcurrentRuns)
        blocking.stop()
        #expect(blocking.count == 0)
        // Exit tests in this process wait until no child has ended without being reaped.
        for child in children { #expect(waitpid(child, nil, 0) == child) }
    }
}
