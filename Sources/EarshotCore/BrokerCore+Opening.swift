/// Opening of a broker that follows one that died. The workers of that broker end their transfers before they say
/// READY to the next one, so nothing starts until each of them is READY or dead.
extension BrokerCore {
    /// Delays all starts until each of these processes is READY or has ended, and begins a slow start of all origins.
    ///
    /// - Parameters:
    ///   - processes: the workers that the dead broker may have had; those of the supervisor, if there is one.
    ///   - limit: time at which the supervisor kills processes that are neither. Without a supervisor nothing waits
    ///     for them any longer.
    public mutating func brokerDied(awaiting processes: Set<Int32>, until limit: Tick, now: Tick) {
        records.workers.awaitProcesses(processes)
        records.governor.awaitSlowStart()
        if processes.isEmpty { open(now: now) } else { records.setTimer(limit, .opening) }
    }

    /// Handles the end of a process, which may be a worker of the dead broker.
    public mutating func processEnded(_ process: Int32, now: Tick) { stopAwaiting(process, now: now) }

    /// Stops waiting for a process that is READY or has ended.
    mutating func stopAwaiting(_ process: Int32, now: Tick) {
        if records.workers.stopAwaiting(process) { open(now: now) }
    }

    /// Ends the time of the awaited processes.
    mutating func openingOverdue(now: Tick) {
        let overdue = records.workers.awaitedProcesses.sorted()
        guard !overdue.isEmpty else { return }
        if records.features.isSupervised {
            for process in overdue { records.outbox.actions.append(.supervisor(.killWorker(process))) }
        } else {
            records.workers.awaitProcesses([])
            open(now: now)
        }
    }

    private mutating func open(now: Tick) {
        Origins.openSlowStart(now: now, in: &records)
        // Removes the files of the dead broker's attempts, all of which have ended.
        records.outbox.actions.append(.spool(.sweep))
    }
}
