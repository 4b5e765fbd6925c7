/// Opening of a broker that follows one that died. The workers of that broker end their transfers before they send
/// READY to the next one, so nothing starts until each of them has sent READY or died.
extension BrokerCore {
    /// Delays all starts until each of these processes has sent READY or ended, and begins a slow start of all origins.
    ///
    /// - Parameters:
    ///   - processes: the workers that the dead broker may have had; those of the supervisor, if there is one.
    ///   - limit: time at which the supervisor kills processes that have done neither. Without a supervisor, the core
    ///     stops waiting for them.
    public mutating func recoverFromBrokerDeath(
        awaiting processes: Set<Int32>, until limit: MonotonicTime, now: MonotonicTime
    ) {
        records.workers.awaitEarlierProcesses(processes)
        records.originGovernor.prepareSlowStart()
        if processes.isEmpty {
            endStartDelay(now: now)
        } else {
            records.setTimer(at: limit, for: .earlierWorkersWaitEnd)
        }
    }

    /// Handles the end of a process, which may be a worker of the dead broker.
    public mutating func formerProcessEnded(_ process: Int32, now: MonotonicTime) {
        stopAwaitingProcess(process, now: now)
    }

    /// Stops waiting for a process that has sent READY or ended.
    mutating func stopAwaitingProcess(_ process: Int32, now: MonotonicTime) {
        if records.workers.stopAwaitingProcess(process) { endStartDelay(now: now) }
    }

    /// Handles the end of the time for which the core waits for processes.
    mutating func processWaitTimedOut(now: MonotonicTime) {
        let overdue = records.workers.awaitedEarlierWorkerProcesses.sorted()
        guard !overdue.isEmpty else { return }
        if records.shellFeatures.isSupervised {
            for process in overdue { records.outbox.actions.append(.supervisor(.killWorker(process))) }
        } else {
            records.workers.awaitEarlierProcesses([])
            endStartDelay(now: now)
        }
    }

    private mutating func endStartDelay(now: MonotonicTime) {
        Origins.openSlowStart(now: now, in: &records)
        // Removes the files of the dead broker's attempts, all of which have ended.
        records.outbox.actions.append(.spool(.removeStaleAttemptFiles))
    }
}
