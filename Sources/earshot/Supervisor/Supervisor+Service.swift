internal import EarshotCore
internal import EarshotLoop

/// What a service manager hears, where one started the supervisor: sd_notify(3).
extension Supervisor {
    /// Beyond the time that an end may take, before the service manager ends it.
    private static let stopReserve = Duration.seconds(2)

    /// Tells how things are, if that is news: ready as soon as the broker serves and has taken in each worker that does
    /// not fail, at least one.
    func tellService() {
        guard let service else { return }
        var news: [(variable: String, value: String)] = []
        if phase == .serving, isReady, !isServiceReady, workersTakenIn >= max(1, soundWorkers) {
            isServiceReady = true
            news.append(("READY", "1"))
            askForLife()
        }
        if isReloading, unansweredSettings == 0, !owesSettings || channel == nil {
            isReloading = false
            news.append(("READY", "1"))
        }
        let state = state
        if state != toldState {
            toldState = state
            news.append(("STATUS", state))
        }
        if !news.isEmpty { service.tell(news, loop: loop) }
    }

    /// SIGHUP has come. The end of it is told when the broker has taken the settings.
    func reloadBegan() {
        guard let service, isServiceReady else { return }
        isReloading = true
        let now = String(LoopTime.read().nanoseconds / 1_000)
        service.tell([("RELOADING", "1"), ("MONOTONIC_USEC", now)], loop: loop)
    }

    /// A signal ends it, within `limit`.
    func stopBegan(limit: Duration) {
        let time = limit + Self.stopReserve
        let microseconds = time.components.seconds * 1_000_000 + time.components.attoseconds / 1_000_000_000_000
        service?.tell([("STOPPING", "1"), ("EXTEND_TIMEOUT_USEC", String(microseconds))], loop: loop)
        tellService()
    }

    /// The broker's loop runs. A broker without a worker is no sign of life unless it ends.
    func brokerLives() {
        guard workersTakenIn > 0 || phase != .serving else { return }
        service?.tell([("WATCHDOG", "1")], loop: loop)
    }

    /// Asks the broker, twice in the time in which the service manager wants to hear of life.
    private func askForLife() {
        guard let time = service?.watchdogTime else { return }
        if let channel, !channel.hasBacklog { channel.send([SupervisorWord.alive]) }
        loop.setTimer(after: time / 2) { [unowned self] in askForLife() }
    }

    /// Workers that are to be there and have not failed.
    private var soundWorkers: Int { posts.count { $0.role == .worker && !$0.isLeaving && !$0.rule.isFailing } }

    /// A line for people.
    private var state: String {
        guard phase == .serving else { return "finishing what runs" }
        guard isReady else { return "starting" }
        let failures = failures
        if let broker = failures.first(where: { $0.role == "broker" }) {
            return "the broker ended \(broker.deaths) times in a row, last with \(broker.lastEnd)"
        }
        let wanted = posts.count { $0.role == .worker && !$0.isLeaving }
        return "serving with \(workersTakenIn) of \(wanted) workers"
            + (failures.isEmpty ? "" : ", \(failures.count) of which end soon after each start")
    }
}
