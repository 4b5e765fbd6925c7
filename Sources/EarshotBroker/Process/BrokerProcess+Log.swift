internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire
internal import Logging

/// Log of attempts and terminals. An attempt has the same name, `attempt`, in the log of its worker.
extension BrokerProcess {
    /// Logs the assignment of an attempt.
    func logAssignment(_ assigned: AttemptAssignment) {
        var metadata: Logger.Metadata = [
            "attempt": "\(assigned.attempt)", "worker": "\(workerPort.pid(of: assigned.worker.rawValue))",
            "url": "\(Self.redacted(assigned.url))",
        ]
        if let handler = assigned.handler { metadata["handler"] = "\(handler)" }
        if let request = assigned.request { metadata["request"] = "\(request)" }
        logger.debug("assigned an attempt", metadata: metadata)
    }

    /// Logs the end of an attempt.
    func logAttemptEnd(_ message: WorkerMessage, by worker: WorkerID) {
        switch message {
        case .completed(let completion):
            logger.debug(
                "an attempt is done",
                metadata: ["attempt": "\(completion.attempt)", "status": "\(completion.status)"])
        case .failed(let attempt, let code, _, _, _, _, _, _):
            logger.debug("an attempt failed", metadata: ["attempt": "\(attempt)", "code": "\(code)"])
        case .ready, .progress, .slots, .sandbox, .pong, .bye: break
        }
    }

    /// Bars a worker in a sandbox from further connections, and logs the first sandbox that lacks a part.
    func sandboxReported(_ worker: UInt64, _ parts: SandboxParts) {
        if parts.filtersSystemCalls, let process = workerPort.liveProcess(of: worker) { barFromSockets(process) }
        guard !parts.isComplete, !workerProcesses.hasLoggedIncompleteSandbox else { return }
        workerProcesses.hasLoggedIncompleteSandbox = true
        logger.warning(
            "the sandbox of the workers is incomplete",
            metadata: ["sandbox": "\(parts)", "reason": "\(parts.missingPartReason ?? "")"])
    }

    /// Logs that the disk of the spool has less free space than the setting `spool-free`, once until it has enough
    /// again.
    func logLowFreeSpace() {
        let least = core.settings[.spoolFree] ?? 0
        guard let free = spool.newFreeSpaceShortage(below: least) else { return }
        logger.warning(
            "the disk of the spool has less free space than the setting spool-free, so large bodies end as spool-full; free disk space, or lower spool-free",
            metadata: ["path": "\(spool.path)", "free": "\(free)", "spool-free": "\(least)"])
    }

    /// Logs a terminal when it is sent, or stored for a slow client. A repeated delivery has another line.
    ///
    /// - Parameter user: principal of the handler; nil for the administrator.
    func logAccess(_ terminal: Terminal, of user: PrincipalName?) {
        var metadata: Logger.Metadata = [
            "user": "\(user?.description ?? "administrator")", "handler": "\(terminal.handler)",
            "request": "\(terminal.request)",
        ]
        switch terminal.outcome {
        case .result(let status, let response):
            metadata["status"] = "\(status)"
            metadata["bytes"] = "\(response.bodyByteCount)"
            metadata["source"] = "\(response.source.rawValue)"
            metadata["milliseconds"] = "\(response.elapsedMilliseconds)"
            metadata["attempts"] = "\(response.attempts)"
            metadata["url"] = "\(Self.redacted(response.url))"
            logger.notice("result", metadata: metadata)
        case .failed(let failure):
            metadata["code"] = "\(failure.code)"
            metadata["attempts"] = "\(failure.attempts)"
            if let status = failure.status { metadata["status"] = "\(status)" }
            if let url = terminal.url { metadata["url"] = "\(Self.redacted(url))" }
            logger.notice("failure", metadata: metadata)
        }
    }

    /// Returns a URL without user information and query.
    private static func redacted(_ url: String) -> String { (try? FetchURL(url))?.redacted ?? "-" }
}

/// Log lines about faults of the cache and of durable requests, which `BrokerProcess` writes.
extension Logger {
    /// Logs a problem of a store: a constant message, with the details of this occurrence as metadata.
    func logFault(_ message: String, details: [String: String]) {
        error("\(message)", metadata: details.mapValues { "\($0)" })
    }
}
