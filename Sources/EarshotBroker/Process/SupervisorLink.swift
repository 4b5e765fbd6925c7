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
/// | to the broker | the end of a worker: `WorkerExit` |
/// | to the broker | `report-ends`, `ignore-ends` |
/// | to the broker | `gateway-proof` and the proof of the gateway |
/// | to the broker | `gateway-pid` and the process ID of a gateway, before it accepts connections |
/// | to the broker | proof, addresses and counts of the HTTP door: `HTTPDoorEvent` |
/// | to the broker | the principals of all valid keys: lines of them after `keys`, then `keys-end` |
/// | to the supervisor | the end of a request, after `report-ends` |
/// | to the supervisor | a setting that a client changed, in the form of SET |
/// | to the supervisor | the number of accepted workers |
/// | to the supervisor | `kill-worker` and the process ID of a worker that does not send READY |
///
/// The settings replace all changes sent before them, including unsent ones.
final class SupervisorLink {
    /// Maximum changes that wait for the supervisor: more than all settings, and 1,000 rules for origins and 200 for
    /// addresses. Only removed rules can exceed it, while the supervisor does not read. The oldest change is dropped,
    /// so the next broker does not learn it.
    static let maximumUnsentChanges = 2_048

    /// Maximum ends of requests that wait for the supervisor: some milliseconds of a busy bus, and at most 40 MiB of
    /// URLs. Further ones are dropped and counted, because the broker must not wait for programs.
    static let maximumUnsentEndedRequests = 4_096

    private let logger: Logger
    private let onNewSettings: (Settings) -> Void
    private let onChildFailures: ([ChildCrashLoop]) -> Void
    private let onWorkerEnd: (WorkerExit) -> Void
    private let onEndReportingChange: (Bool) -> Void
    private let onGatewayProof: (GatewayProof) -> Void
    private let onDoorEvent: (HTTPDoorEvent) -> Void
    private let onGatewayStart: (Int32) -> Void
    private let onPrincipalKeys: (Set<PrincipalName>) -> Void
    private var channel: LineChannel?
    private var pendingLines: [String] = []
    /// Changes that the supervisor cannot receive yet. A later change of the same subject replaces an earlier one.
    private var unsentChanges: [SettingChange] = []
    /// Whether a change was dropped since the supervisor last read. One warning covers them all.
    private var hasDroppedChange = false
    private var unsentEndedRequests: [EndedRequest] = []
    /// Ends that were dropped since the supervisor last read.
    private var droppedEndCount = 0
    /// Unsent number of accepted workers; nil if it was sent.
    private var unsentWorkerCount: Int?
    /// Unsent process IDs of workers to kill.
    private var unsentKillPids: [Int32] = []
    private var acceptedWorkerCount = 0

    init(
        _ descriptor: Int32, loop: EventLoop, logger: Logger, onNewSettings: @escaping (Settings) -> Void,
        onChildFailures: @escaping ([ChildCrashLoop]) -> Void, onWorkerEnd: @escaping (WorkerExit) -> Void = { _ in },
        onEndReportingChange: @escaping (Bool) -> Void = { _ in },
        onGatewayProof: @escaping (GatewayProof) -> Void = { _ in },
        onGatewayStart: @escaping (Int32) -> Void = { _ in },
        onDoorEvent: @escaping (HTTPDoorEvent) -> Void = { _ in },
        onPrincipalKeys: @escaping (Set<PrincipalName>) -> Void = { _ in }
    ) throws(SystemError) {
        self.logger = logger
        self.onNewSettings = onNewSettings
        self.onChildFailures = onChildFailures
        self.onWorkerEnd = onWorkerEnd
        self.onEndReportingChange = onEndReportingChange
        self.onGatewayProof = onGatewayProof
        self.onDoorEvent = onDoorEvent
        self.onGatewayStart = onGatewayStart
        self.onPrincipalKeys = onPrincipalKeys
        let channel = try LineChannel(descriptor, loop: loop) { [unowned self] line in handleLine(line) }
        channel.onBacklogSent = { [unowned self] in sendUnsentMessages() }
        self.channel = channel
    }

    /// Handles all lines that the supervisor has sent, without the next turn of the loop.
    func processPendingLines() { channel?.deliverPendingLines() }

    /// Reports a client's change of a setting, now or once the channel has room.
    func reportChange(_ change: SettingChange) {
        unsentChanges.removeAll { $0.replacementKey == change.replacementKey }
        unsentChanges.append(change)
        sendUnsentMessages()
        guard unsentChanges.count > Self.maximumUnsentChanges else { return }
        unsentChanges.removeFirst()
        guard !hasDroppedChange else { return }
        hasDroppedChange = true
        logger.warning(
            "the supervisor does not read changes of settings: the oldest are lost with this broker",
            metadata: ["waiting": "\(unsentChanges.count)"])
    }

    /// Reports the end of a request, now or once the channel has room.
    func reportEnd(_ ended: EndedRequest) {
        guard unsentEndedRequests.count < Self.maximumUnsentEndedRequests else {
            droppedEndCount += 1
            return
        }
        unsentEndedRequests.append(ended)
        sendUnsentMessages()
    }

    /// Reports the number of accepted workers, if it has changed.
    func reportWorkerCount(acceptingWorkers count: Int) {
        guard count != acceptedWorkerCount else { return }
        acceptedWorkerCount = count
        unsentWorkerCount = count
        sendUnsentMessages()
    }

    /// Requests that the supervisor kill a worker of an earlier broker, now or once the channel has room.
    func requestKill(worker pid: Int32) {
        unsentKillPids.append(pid)
        sendUnsentMessages()
    }

    private func sendUnsentMessages() {
        guard let channel, !channel.hasBacklog else { return }
        hasDroppedChange = false
        var lines = unsentChanges.map { $0.normalizedWords.joined(separator: " ") }
        unsentChanges = []
        lines += unsentEndedRequests.map(\.line)
        unsentEndedRequests = []
        if droppedEndCount > 0 {
            logger.warning(
                "the supervisor did not read ends of requests in time: on-complete runs no program for some",
                metadata: ["dropped": "\(droppedEndCount)"])
            droppedEndCount = 0
        }
        if let count = unsentWorkerCount { lines.append("\(SupervisorCommand.readyWorkerCount) \(count)") }
        unsentWorkerCount = nil
        lines += unsentKillPids.map { "\(SupervisorCommand.killWorker) \($0)" }
        unsentKillPids = []
        if !lines.isEmpty { channel.send(lines) }
    }

    private func handleLine(_ line: String) {
        switch line {
        case SupervisorCommand.healthCheck:
            if let channel, !channel.hasBacklog { channel.send([SupervisorCommand.healthCheck]) }
        case SupervisorCommand.startReportingRequestEnds: onEndReportingChange(true)
        case SupervisorCommand.stopReportingRequestEnds: onEndReportingChange(false)
        case _ where line.hasPrefix(WorkerExit.lineKeyword + " "):
            if let end = WorkerExit(supervisorLine: line) { onWorkerEnd(end) }
        case _ where line.hasPrefix(SupervisorCommand.gatewayProof + " "):
            if let proof = GatewayProof(String(line.dropFirst(SupervisorCommand.gatewayProof.utf8.count + 1))) {
                onGatewayProof(proof)
            }
        case _ where line.hasPrefix(SupervisorCommand.gatewayProcessID + " "):
            if let pid = Int32(line.dropFirst(SupervisorCommand.gatewayProcessID.utf8.count + 1)) {
                onGatewayStart(pid)
            }
        case SupervisorCommand.endOfValidKeyPrincipals:
            let names = pendingLines.flatMap { $0.split(separator: " ").dropFirst() }
            onPrincipalKeys(Set(names.compactMap { PrincipalName(String($0)) }))
            pendingLines = []
        case ChildCrashLoop.endOfCrashLoopsLine:
            onChildFailures(pendingLines.compactMap { ChildCrashLoop(supervisorLine: $0) })
            pendingLines = []
        case Settings.endOfSettingsLine: processSettingsLines()
        case _ where line.hasPrefix("door-"): if let event = HTTPDoorEvent(line: line) { onDoorEvent(event) }
        default: pendingLines.append(line)
        }
    }

    private func processSettingsLines() {
        do throws(SettingError) {
            let settings = try Settings(supervisorLines: pendingLines)
            unsentChanges = []
            onNewSettings(settings)
            channel?.send([Settings.confirmationLine])
        } catch {
            // Impossible unless the supervisor is of another build.
            logger.error("cannot parse the supervisor's settings", metadata: ["error": "\(error)"])
        }
        pendingLines = []
    }
}
