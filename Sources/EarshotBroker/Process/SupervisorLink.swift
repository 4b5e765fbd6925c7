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
/// | to the broker | proof, addresses and counts of the HTTP door: `DoorEvent` |
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
    static let mostUnsent = 2_048

    /// Maximum ends of requests that wait for the supervisor: some milliseconds of a busy bus, and at most 40 MiB of URLs.
    /// Further ones are dropped and counted, because the broker must not wait for programs.
    static let mostUnsentEnds = 4_096

    private let logger: Logger
    private let onSettings: (Settings) -> Void
    private let onFailures: ([ChildFailure]) -> Void
    private let onWorkerEnd: (WorkerEnd) -> Void
    private let onReports: (Bool) -> Void
    private let onProof: (GatewayProof) -> Void
    private let onDoor: (DoorEvent) -> Void
    private let onGateway: (Int32) -> Void
    private let onKeys: (Set<PrincipalName>) -> Void
    private var channel: LineChannel?
    private var lines: [String] = []
    /// Changes that the supervisor cannot receive yet. A later change of the same subject replaces an earlier one.
    private var unsent: [SettingChange] = []
    /// Whether a change was dropped since the supervisor last read. One warning covers them all.
    private var hasDropped = false
    private var unsentEnds: [EndedRequest] = []
    /// Ends that were dropped since the supervisor last read.
    private var droppedEnds = 0
    /// Unsent number of accepted workers; nil if it was sent.
    private var unsentWorkers: Int?
    /// Unsent process IDs of workers to kill.
    private var unsentKills: [Int32] = []
    private var workers = 0

    init(
        _ descriptor: Int32, loop: EventLoop, logger: Logger, onSettings: @escaping (Settings) -> Void,
        onFailures: @escaping ([ChildFailure]) -> Void, onWorkerEnd: @escaping (WorkerEnd) -> Void = { _ in },
        onReports: @escaping (Bool) -> Void = { _ in },
        onProof: @escaping (GatewayProof) -> Void = { _ in }, onGateway: @escaping (Int32) -> Void = { _ in },
        onDoor: @escaping (DoorEvent) -> Void = { _ in }, onKeys: @escaping (Set<PrincipalName>) -> Void = { _ in }
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
        channel.onRoom = { [unowned self] in sendRest() }
        self.channel = channel
    }

    /// Handles all lines that the supervisor has sent, without the next turn of the loop.
    func takeLines() { channel?.takeLines() }

    /// Reports a client's change of a setting, now or once the channel has room.
    func report(_ change: SettingChange) {
        unsent.removeAll { $0.subject == change.subject }
        unsent.append(change)
        sendRest()
        guard unsent.count > Self.mostUnsent else { return }
        unsent.removeFirst()
        guard !hasDropped else { return }
        hasDropped = true
        logger.warning(
            "the supervisor does not read changes of settings: the oldest are lost with this broker",
            metadata: ["waiting": "\(unsent.count)"])
    }

    /// Reports the end of a request, now or once the channel has room.
    func report(_ ended: EndedRequest) {
        guard unsentEnds.count < Self.mostUnsentEnds else {
            droppedEnds += 1
            return
        }
        unsentEnds.append(ended)
        sendRest()
    }

    /// Reports the number of accepted workers, if it has changed.
    func report(acceptingWorkers count: Int) {
        guard count != workers else { return }
        workers = count
        unsentWorkers = count
        sendRest()
    }

    /// Asks for the death of a worker that an earlier broker had, now or once the channel has room.
    func kill(worker pid: Int32) {
        unsentKills.append(pid)
        sendRest()
    }

    private func sendRest() {
        guard let channel, !channel.hasBacklog else { return }
        hasDropped = false
        var lines = unsent.map { $0.words.joined(separator: " ") }
        unsent = []
        lines += unsentEnds.map(\.line)
        unsentEnds = []
        if droppedEnds > 0 {
            logger.warning(
                "the supervisor did not read ends of requests in time: on-complete runs no program for some",
                metadata: ["dropped": "\(droppedEnds)"])
            droppedEnds = 0
        }
        if let count = unsentWorkers { lines.append("\(SupervisorCommand.workers) \(count)") }
        unsentWorkers = nil
        lines += unsentKills.map { "\(SupervisorCommand.killWorker) \($0)" }
        unsentKills = []
        if !lines.isEmpty { channel.send(lines) }
    }

    private func take(_ line: String) {
        switch line {
        case SupervisorCommand.alive: if let channel, !channel.hasBacklog { channel.send([SupervisorCommand.alive]) }
        case SupervisorCommand.reportEnds: onReports(true)
        case SupervisorCommand.ignoreEnds: onReports(false)
        case _ where line.hasPrefix(WorkerEnd.word + " "):
            if let end = WorkerEnd(line: line) { onWorkerEnd(end) }
        case _ where line.hasPrefix(SupervisorCommand.proof + " "):
            if let proof = GatewayProof(String(line.dropFirst(SupervisorCommand.proof.utf8.count + 1))) {
                onProof(proof)
            }
        case _ where line.hasPrefix(SupervisorCommand.gateway + " "):
            if let pid = Int32(line.dropFirst(SupervisorCommand.gateway.utf8.count + 1)) { onGateway(pid) }
        case SupervisorCommand.keysEnd:
            onKeys(Set(lines.flatMap { $0.split(separator: " ").dropFirst() }.compactMap { PrincipalName(String($0)) }))
            lines = []
        case ChildFailure.end:
            onFailures(lines.compactMap { ChildFailure(line: $0) })
            lines = []
        case Settings.end: takeSettings()
        case _ where line.hasPrefix("door-"): if let event = DoorEvent(line: line) { onDoor(event) }
        default: lines.append(line)
        }
    }

    private func takeSettings() {
        do throws(SettingError) {
            let settings = try Settings(lines: lines)
            unsent = []
            onSettings(settings)
            channel?.send([Settings.confirmation])
        } catch {
            // Impossible unless the supervisor is of another build.
            logger.error("cannot parse the supervisor's settings", metadata: ["error": "\(error)"])
        }
        lines = []
    }
}
