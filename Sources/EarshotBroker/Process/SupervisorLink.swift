internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Line channel to the supervisor, which reads the configuration files and outlives brokers.
///
/// | direction | message |
/// | --- | --- |
/// | to the broker | all settings: one line each, then `end`; answered by `read` |
/// | to the broker | all failing children: one line each, then `failing` |
/// | to the broker | `alive`; answered by `alive` |
/// | to the broker | the end of a worker: `WorkerEnd` |
/// | to the broker | `report-ends`, `ignore-ends` |
/// | to the broker | `gateway-proof` and the proof of the gateway |
/// | to the broker | `gateway-pid` and the process ID of a gateway, before that accepts connections |
/// | to the broker | proof, addresses and counts of the HTTP door: `DoorNews` |
/// | to the broker | the principals of all valid keys: lines of them after `keys`, then `keys-end` |
/// | to the supervisor | the end of a request, after `report-ends` |
/// | to the supervisor | a setting that a client changed, in the form of SET |
/// | to the supervisor | the number of accepted workers |
/// | to the supervisor | `kill-worker` and the process ID of a worker that does not say READY |
///
/// The settings replace all changes sent before them, including unsent ones.
final class SupervisorLink {
    /// Maximum changes that wait for the supervisor: more than all settings, and 1,000 rules for origins and 200 for
    /// addresses. Only removed rules can exceed it, while the supervisor does not read. The oldest change is dropped, so
    /// the next broker does not learn it.
    static let mostUnsaid = 2_048

    /// Maximum ends of requests that wait for the supervisor: some milliseconds of a busy bus, and at most 40 MiB of URLs.
    /// Further ones are dropped and counted, because the broker must not wait for programs.
    static let mostUnsaidEnds = 4_096

    private let logger: Logger
    private let onSettings: (Settings) -> Void
    private let onFailures: ([ChildFailure]) -> Void
    private let onWorkerEnd: (WorkerEnd) -> Void
    private let onReports: (Bool) -> Void
    private let onProof: (GatewayProof) -> Void
    private let onDoor: (DoorNews) -> Void
    private let onGateway: (Int32) -> Void
    private let onKeys: (Set<PrincipalName>) -> Void
    private var channel: LineChannel?
    private var lines: [String] = []
    /// Changes that the supervisor cannot receive yet. A later change of the same subject replaces an earlier one.
    private var unsaid: [SettingChange] = []
    /// Whether a change was dropped since the supervisor last read. One warning covers them all.
    private var hasDropped = false
    private var unsaidEnds: [EndedRequest] = []
    /// Ends that were dropped since the supervisor last read.
    private var droppedEnds = 0
    /// Unsent number of accepted workers; nil if it was sent.
    private var unsaidWorkers: Int?
    /// Unsent process IDs of workers to kill.
    private var unsentKills: [Int32] = []
    private var workers = 0

    init(
        _ descriptor: Int32, loop: EventLoop, logger: Logger, onSettings: @escaping (Settings) -> Void,
        onFailures: @escaping ([ChildFailure]) -> Void, onWorkerEnd: @escaping (WorkerEnd) -> Void = { _ in },
        onReports: @escaping (Bool) -> Void = { _ in },
        onProof: @escaping (GatewayProof) -> Void = { _ in }, onGateway: @escaping (Int32) -> Void = { _ in },
        onDoor: @escaping (DoorNews) -> Void = { _ in }, onKeys: @escaping (Set<PrincipalName>) -> Void = { _ in }
    ) throws(SystemError) {
        self.logger = logger
        self.onSettings = onSettings
        self.onFailures = onFailures
        self.onWorkerEnd = onWorkerEnd
        self.onReports = onReports
        self.onProof = onProof
        self.onDoor = onDoor
        self.onGateway = onGateway
        self.onKeys = onKeys
        let channel = try LineChannel(descriptor, loop: loop) { [unowned self] line in take(line) }
        channel.onRoom = { [unowned self] in sayRest() }
        self.channel = channel
    }

    /// Handles all lines that the supervisor has sent, without the next turn of the loop.
    func takeLines() { channel?.takeLines() }

    /// Reports a client's change of a setting, now or once the channel has room.
    func tell(_ change: SettingChange) {
        unsaid.removeAll { $0.subject == change.subject }
        unsaid.append(change)
        sayRest()
        guard unsaid.count > Self.mostUnsaid else { return }
        unsaid.removeFirst()
        guard !hasDropped else { return }
        hasDropped = true
        logger.warning(
            "the supervisor does not read changes of settings: the oldest are lost with this broker",
            metadata: ["waiting": "\(unsaid.count)"])
    }

    /// Reports the end of a request, now or once the channel has room.
    func tell(_ ended: EndedRequest) {
        guard unsaidEnds.count < Self.mostUnsaidEnds else {
            droppedEnds += 1
            return
        }
        unsaidEnds.append(ended)
        sayRest()
    }

    /// Reports the number of accepted workers, if it has changed.
    func tell(workersTakenIn count: Int) {
        guard count != workers else { return }
        workers = count
        unsaidWorkers = count
        sayRest()
    }

    /// Asks for the death of a worker that an earlier broker had, now or once the channel has room.
    func kill(worker pid: Int32) {
        unsentKills.append(pid)
        sayRest()
    }

    private func sayRest() {
        guard let channel, !channel.hasBacklog else { return }
        hasDropped = false
        var lines = unsaid.map { $0.words.joined(separator: " ") }
        unsaid = []
        lines += unsaidEnds.map(\.line)
        unsaidEnds = []
        if droppedEnds > 0 {
            logger.warning(
                "the supervisor did not read ends of requests in time: on-complete runs no program for some",
                metadata: ["dropped": "\(droppedEnds)"])
            droppedEnds = 0
        }
        if let count = unsaidWorkers { lines.append("\(SupervisorWord.workers) \(count)") }
        unsaidWorkers = nil
        lines += unsentKills.map { "\(SupervisorWord.killWorker) \($0)" }
        unsentKills = []
        if !lines.isEmpty { channel.send(lines) }
    }

    private func take(_ line: String) {
        switch line {
        case SupervisorWord.alive: if let channel, !channel.hasBacklog { channel.send([SupervisorWord.alive]) }
        case SupervisorWord.reportEnds: onReports(true)
        case SupervisorWord.ignoreEnds: onReports(false)
        case _ where line.hasPrefix(WorkerEnd.word + " "):
            if let end = WorkerEnd(line: line) { onWorkerEnd(end) }
        case _ where line.hasPrefix(SupervisorWord.proof + " "):
            if let proof = GatewayProof(String(line.dropFirst(SupervisorWord.proof.utf8.count + 1))) { onProof(proof) }
        case _ where line.hasPrefix(SupervisorWord.gateway + " "):
            if let pid = Int32(line.dropFirst(SupervisorWord.gateway.utf8.count + 1)) { onGateway(pid) }
        case SupervisorWord.keysEnd:
            onKeys(Set(lines.flatMap { $0.split(separator: " ").dropFirst() }.compactMap { PrincipalName(String($0)) }))
            lines = []
        case ChildFailure.end:
            onFailures(lines.compactMap { ChildFailure(line: $0) })
            lines = []
        case Settings.end: takeSettings()
        case _ where line.hasPrefix("door-"): if let news = DoorNews(line: line) { onDoor(news) }
        default: lines.append(line)
        }
    }

    private func takeSettings() {
        do throws(SettingError) {
            let settings = try Settings(lines: lines)
            unsaid = []
            onSettings(settings)
            channel?.send([Settings.taken])
        } catch {
            // Impossible unless the supervisor is of another build.
            logger.error("cannot parse the supervisor's settings", metadata: ["error": "\(error)"])
        }
        lines = []
    }
}
