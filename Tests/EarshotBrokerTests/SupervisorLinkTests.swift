import EarshotCore
import EarshotLoop
import EarshotWire
import Logging
import Testing

@testable import EarshotBroker

/// The dialogue of a broker with its supervisor, which the test plays.
struct SupervisorLinkTests {
    /// A link, and the descriptor of the supervisor's end until the supervisor listens.
    private final class Rig {
        let loop: EventLoop
        let link: SupervisorLink
        var settings: [Settings] { received.settings }
        var failures: [[ChildCrashLoop]] { received.failures }
        var reports: [Bool] { received.reports }
        var door: [HTTPDoorEvent] { received.door }
        private(set) var lines: [String] = []
        private let received = Received()
        private let end: Int32
        private var supervisor: LineChannel?

        private final class Received {
            var settings: [Settings] = []
            var failures: [[ChildCrashLoop]] = []
            var reports: [Bool] = []
            var door: [HTTPDoorEvent] = []
        }

        init() throws {
            loop = try EventLoop()
            let ends = try LineChannel.makePair()
            end = ends.own
            let received = received
            link = try SupervisorLink(
                ends.child, loop: loop, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
                onNewSettings: { received.settings.append($0) }, onChildFailures: { received.failures.append($0) },
                onEndReportingChange: { received.reports.append($0) }, onDoorEvent: { received.door.append($0) })
        }

        /// Starts to read at the supervisor's end.
        func listen() throws {
            supervisor = try LineChannel(end, loop: loop) { [unowned self] line in lines.append(line) }
        }

        func send(_ lines: [String]) { supervisor?.send(lines) }

        /// Writes lines while the supervisor does not read.
        func write(_ lines: [String]) throws {
            for line in lines {
                let sent = unsafe Array(line.utf8).withUnsafeBytes { unsafe UnixSocket.send(end, $0) }
                try #require(sent == .bytesTransferred(line.utf8.count))
            }
        }

        /// Runs the loop until the condition holds, for a minute at most.
        func reaches(_ condition: () -> Bool) throws -> Bool { try loop.run(for: .seconds(60), until: condition) }
    }

    @Test func `lines about the door and settings of the door are told apart`() throws {
        let rig = try Rig()
        try rig.listen()
        var settings = Settings()
        try settings.applyChange(SettingChange(words: ["http", "5768"]), source: "flag")
        try settings.applyChange(SettingChange(words: ["http-users", "_apt"]), source: "flag")
        try settings.applyChange(SettingChange(words: ["http-wait", "3"]), source: "flag")
        let (proof, url) = (String(repeating: "0", count: 64), "http://127.0.0.1:5768/")
        rig.send(
            ["\(SupervisorCommand.doorProof) \(proof)"] + settings.supervisorLines + [Settings.endOfSettingsLine]
                + [
                    "\(SupervisorCommand.doorListeningAddresses) \(url) /a", "\(SupervisorCommand.doorCounts) 1 2 3",
                    "door-counts 1 -2 3",
                ]
                + ["\(SupervisorCommand.doorProof) short", SupervisorCommand.doorListeningAddresses])
        #expect(try rig.reaches { rig.door.count == 4 })
        #expect(rig.settings == [settings])
        #expect(
            try rig.door == [
                .doorProof(#require(GatewayProof(proof))), .listeningAddresses([url, "/a"]),
                .counts(connections: 1, requests: 2, refusedRequests: 3), .listeningAddresses([]),
            ])
    }

    @Test func `a supervisor that does not read gets a bounded number of ends`() throws {
        let rig = try Rig()
        let ended = EndedRequest(handler: try #require(HandlerID("h")), request: try #require(RequestID("1")))
        for _ in 0..<20_000 { rig.link.reportEnd(ended) }
        try rig.listen()
        rig.link.reportWorkerCount(acceptingWorkers: 7)
        #expect(try rig.reaches { rig.lines.last == "\(SupervisorCommand.readyWorkerCount) 7" })
        let ends = rig.lines.count { EndedRequest(line: $0) == ended }
        #expect(ends >= SupervisorLink.maximumUnsentEndedRequests && ends < 20_000)
        rig.send([SupervisorCommand.startReportingRequestEnds, SupervisorCommand.stopReportingRequestEnds])
        #expect(try rig.reaches { rig.reports == [true, false] })
    }

    @Test func `the supervisor gets each worker to kill, also if it reads later`() throws {
        let rig = try Rig()
        rig.link.requestKill(worker: 7)
        rig.link.requestKill(worker: 8)
        try rig.listen()
        let lines = [7, 8].map { "\(SupervisorCommand.killWorker) \($0)" }
        #expect(try rig.reaches { rig.lines == lines })
    }

    private func rig() throws -> Rig {
        let rig = try Rig()
        try rig.listen()
        return rig
    }

    @Test func `settings arrive as a whole and are confirmed once they apply`() throws {
        let rig = try rig()
        var settings = Settings()
        try settings.applyChange(try SettingChange(words: ["slots", "7"]), source: "/etc/earshot/config.toml")
        rig.send(settings.supervisorLines)
        rig.send([SupervisorCommand.healthCheck])
        #expect(try rig.reaches { rig.lines.contains(SupervisorCommand.healthCheck) })
        #expect(rig.settings.isEmpty, "the end is missing")
        rig.send([Settings.endOfSettingsLine])
        #expect(try rig.reaches { rig.lines.last == Settings.confirmationLine })
        #expect(rig.settings == [settings])
    }

    @Test func `unreadable settings are not confirmed, and the next ones apply`() throws {
        let rig = try rig()
        rig.send(["slots 0\tflag", Settings.endOfSettingsLine, SupervisorCommand.healthCheck])
        #expect(try rig.reaches { rig.lines == [SupervisorCommand.healthCheck] })
        #expect(rig.settings.isEmpty)
        rig.send(Settings().supervisorLines + [Settings.endOfSettingsLine])
        #expect(try rig.reaches { rig.lines.last == Settings.confirmationLine })
        #expect(rig.settings == [Settings()])
    }

    @Test func `failures of children arrive as a whole`() throws {
        let rig = try rig()
        let failures = ["broker", "worker"].map { role in
            ChildCrashLoop(
                childRole: role, consecutiveDeathCount: 3, firstDeathAt: "2044-11-06T08:49:37Z",
                lastExitDescription: "signal 9")
        }
        rig.send(
            failures.map(\.supervisorLine) + [ChildCrashLoop.endOfCrashLoopsLine, ChildCrashLoop.endOfCrashLoopsLine])
        #expect(try rig.reaches { rig.failures.count == 2 })
        #expect(rig.failures == [failures, []])
    }

    @Test func `the supervisor receives each change and each new number of workers`() throws {
        let rig = try rig()
        rig.link.reportChange(try SettingChange(words: ["slots", "7"]))
        rig.link.reportChange(try SettingChange(words: ["slots", "8"]))
        for count in [1, 1, 2, 1] { rig.link.reportWorkerCount(acceptingWorkers: count) }
        let workers = [1, 2, 1].map { "\(SupervisorCommand.readyWorkerCount) \($0)" }
        #expect(try rig.reaches { rig.lines.count == 5 })
        #expect(rig.lines == ["slots 7", "slots 8"] + workers)
    }

    @Test func `a supervisor that reads late receives the last value of each subject`() throws {
        let rig = try Rig()
        let count = 20_000
        for number in 0..<count { rig.link.reportChange(try SettingChange(words: ["slots", "\(number % 1_000 + 1)"])) }
        for workers in 1...count { rig.link.reportWorkerCount(acceptingWorkers: workers) }
        rig.link.reportChange(try SettingChange(words: ["origin-limit", "9"]))
        try rig.listen()
        #expect(try rig.reaches { rig.lines.contains("origin-limit 9") })
        #expect(rig.lines.count < count, "the later value took the place of the earlier one")
        #expect(rig.lines.last { $0.hasPrefix("slots ") } == "slots 1000")
        #expect(
            rig.lines.last { $0.hasPrefix(SupervisorCommand.readyWorkerCount) }
                == "\(SupervisorCommand.readyWorkerCount) \(count)")
    }

    @Test func `a supervisor that does not read loses the oldest changes beyond the bound`() throws {
        let rig = try Rig()
        for workers in 1...20_000 { rig.link.reportWorkerCount(acceptingWorkers: workers) }
        rig.link.reportChange(try SettingChange(words: ["origin-limit", "9"]))
        for number in 1...SupervisorLink.maximumUnsentChanges {
            rig.link.reportChange(try SettingChange(words: ["origin", "host-\(number).test", "limit=2"]))
        }
        try rig.listen()
        let last = "host-\(SupervisorLink.maximumUnsentChanges).test"
        #expect(try rig.reaches { rig.lines.contains { $0.contains(last) } })
        #expect(rig.lines.contains { $0.contains("host-1.test") })
        #expect(!rig.lines.contains("origin-limit 9"), "the oldest change")
    }

    @Test func `settings of the supervisor replace changes that it has not received`() throws {
        let rig = try Rig()
        for number in 0..<20_000 {
            rig.link.reportChange(try SettingChange(words: ["slots", "\(number % 1_000 + 1)"]))
        }
        rig.link.reportChange(try SettingChange(words: ["origin-limit", "9"]))
        try rig.write(Settings().supervisorLines + [Settings.endOfSettingsLine])
        #expect(try rig.reaches { rig.settings == [Settings()] })
        try rig.listen()
        #expect(try rig.reaches { rig.lines.last == Settings.confirmationLine })
        #expect(!rig.lines.contains("origin-limit 9"))
    }
}
