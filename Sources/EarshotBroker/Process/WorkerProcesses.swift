internal import EarshotCore
internal import EarshotLoop

/// Ends of worker processes that only one side has noticed: this process, which detects that a process has ended, or
/// the supervisor, its parent, which knows the cause.
///
/// A process can have been several workers: it connects again when its connection is lost, and is killed nevertheless.
struct WorkerProcesses {
    /// Maximum number of reports without a worker: of workers that died before they were connected.
    static let maximumPendingReports = 1_024

    /// Workers whose process has ended without a report yet.
    private var workersAwaitingReport: [Int32: [WorkerID]] = [:]
    /// Reports about processes whose end was not noticed yet.
    private var unmatchedReports: [Int32: WorkerExit] = [:]
    /// Processes that this broker has killed.
    private var killedPids: Set<Int32> = []
    /// Living processes of workers whose connection was lost in this pass.
    var disconnectedProcesses: [WorkerID: ProcessDescriptor] = [:]
    /// Whether an incomplete sandbox of a worker was logged.
    var hasLoggedIncompleteSandbox = false

    /// Notes that this broker kills a process.
    mutating func recordKill(pid: Int32) { killedPids.insert(pid) }

    /// Returns the report about a process; nil if none has come yet.
    mutating func takeReport(onPid pid: Int32) -> WorkerExit? {
        guard var report = unmatchedReports.removeValue(forKey: pid) else { return nil }
        if killedPids.remove(pid) != nil { report.wasKilledByBus = true }
        return report
    }

    /// Notes that a worker's process has ended and that its report is awaited.
    mutating func awaitReport(on worker: WorkerID, pid: Int32) {
        workersAwaitingReport[pid, default: []].append(worker)
    }

    /// Whether the report about a worker's process is still awaited. It is not awaited any longer.
    mutating func cancelAwaitedReport(on worker: WorkerID, pid: Int32) -> Bool {
        guard let index = workersAwaitingReport[pid]?.firstIndex(of: worker) else { return false }
        workersAwaitingReport[pid]?.remove(at: index)
        if workersAwaitingReport[pid]?.isEmpty == true { workersAwaitingReport[pid] = nil }
        killedPids.remove(pid)
        return true
    }

    /// Records the supervisor's report about the end of a worker.
    ///
    /// - Returns: The workers that awaited it, and the report, which shows whether this broker killed the process.
    mutating func recordReport(_ end: WorkerExit) -> (workers: [WorkerID], end: WorkerExit) {
        guard let workers = workersAwaitingReport.removeValue(forKey: end.pid) else {
            if unmatchedReports.count < Self.maximumPendingReports { unmatchedReports[end.pid] = end }
            return ([], end)
        }
        var end = end
        if killedPids.remove(end.pid) != nil { end.wasKilledByBus = true }
        return (workers, end)
    }
}
