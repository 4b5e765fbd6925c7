internal import EarshotCore
internal import EarshotLoop

/// Notification of the service manager about readiness, reloads and the end: sd_notify(3).
extension Supervisor {
    /// Reserve added to the announced shutdown time.
    private static let stopReserve = Duration.seconds(2)

    /// Sends changes of the state. The service is ready once the broker serves and all healthy workers, at least one,
    /// are connected.
    func notifyService() {
        guard let service else { return }
        var variables: [(variable: String, value: String)] = []
        if phase == .serving, isReady, !isServiceReady, acceptingWorkerCount >= max(1, healthyWorkers), isGatewayReady {
            isServiceReady = true
            variables.append(("READY", "1"))
            checkBrokerHealth()
        }
        if isReloading, unansweredSettings == 0, !hasUnsentSettings || brokerChannel == nil {
            isReloading = false
            variables.append(("READY", "1"))
        }
        let state = state
        if state != reportedState {
            reportedState = state
            variables.append(("STATUS", state))
        }
        if !variables.isEmpty { service.notify(variables, loop: loop) }
    }

    /// Announces a reload after SIGHUP. The reload ends when the broker has applied the settings.
    func announceReload() {
        guard let service, isServiceReady else { return }
        isReloading = true
        let now = String(LoopTime.readClock().nanoseconds / 1_000)
        service.notify([("RELOADING", "1"), ("MONOTONIC_USEC", now)], loop: loop)
    }

    /// Announces a shutdown that takes at most `limit`.
    func announceStop(limit: Duration) {
        let time = limit + Self.stopReserve
        let microseconds = time.components.seconds * 1_000_000 + time.components.attoseconds / 1_000_000_000_000
        service?.notify([("STOPPING", "1"), ("EXTEND_TIMEOUT_USEC", String(microseconds))], loop: loop)
        notifyService()
    }

    /// Feeds the watchdog after a health check of the broker. A running bus without workers counts as unhealthy.
    func feedWatchdog() {
        guard acceptingWorkerCount > 0 || phase != .serving else { return }
        service?.notify([("WATCHDOG", "1")], loop: loop)
    }

    /// Requests a health check of the broker, twice per watchdog interval.
    private func checkBrokerHealth() {
        guard let time = service?.watchdogTime else { return }
        if let brokerChannel, !brokerChannel.hasBacklog { brokerChannel.send([SupervisorCommand.healthCheck]) }
        loop.setTimer(after: time / 2) { [unowned self] in checkBrokerHealth() }
    }

    /// Number of workers in the pool that are not in a crash loop.
    private var healthyWorkers: Int { childSlots.count { $0.role == .worker && !$0.isRetiring && !$0.rule.isFailing } }

    /// Status line of the service.
    private var state: String {
        guard phase == .serving else { return "draining" }
        guard isReady else { return "starting" }
        let failures = failures
        if let broker = failures.first(where: { $0.childRole == "broker" }) {
            let (count, lastExit) = (broker.consecutiveDeathCount, broker.lastExitDescription)
            return "the broker ended \(count) times in a row, last with \(lastExit)"
        }
        let wanted = childSlots.count { $0.role == .worker && !$0.isRetiring }
        let workers = failures.filter { $0.childRole == "worker" }
        let lastExit = workers.first?.lastExitDescription
        let crashLoops = lastExit.map { ", \(workers.count) of them in a crash loop, last with \($0)" } ?? ""
        let others = failures.filter { $0.childRole != "worker" }.map {
            ", \($0.childRole) in a crash loop, last with \($0.lastExitDescription)"
        }
        return (acceptingWorkerCount == 0 ? "not ready: " : "serving with ")
            + "\(acceptingWorkerCount) of \(wanted) workers" + crashLoops + others.joined()
    }
}
