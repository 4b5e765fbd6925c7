internal import EarshotCore
internal import EarshotLoop

/// Processes of workers: ends of which only one side knows, which are this process, which sees that a process has ended,
/// and the supervisor, its parent, which knows how.
///
/// A process can have been several workers: it connects again when its connection is lost, and is killed nevertheless.
struct WorkerProcesses {
    /// Maximum number of reports without a worker: of workers that died before they were connected.
    static let mostReports = 1_024

    /// Workers whose process has ended without a report yet.
    private var unreported: [Int32: [WorkerID]] = [:]
    /// Reports about processes whose end was not noticed yet.
    private var reports: [Int32: WorkerEnd] = [:]
    /// Processes that this broker has killed.
    private var killed: Set<Int32> = []
    /// Living processes of workers whose connection was lost in this pass.
    var disconnected: [WorkerID: ProcessDescriptor] = [:]
    /// Whether the sandbox of one lacks a part, as the log has it.
    var hasIncompleteSandbox = false

    /// Notes that this broker kills a process.
    mutating func kills(_ pid: Int32) { killed.insert(pid) }

    /// Returns the report about a process; nil if none has come yet.
    mutating func takeReport(on pid: Int32) -> WorkerEnd? {
        guard var report = reports.removeValue(forKey: pid) else { return nil }
        if killed.remove(pid) != nil { report.wasKilledByBus = true }
        return report
    }

    /// Notes that a worker's process has ended and that its report is awaited.
    mutating func awaitReport(on worker: WorkerID, pid: Int32) { unreported[pid, default: []].append(worker) }

    /// Whether the report about a worker's process is still awaited. It is not awaited any longer.
    mutating func abandonedAwait(on worker: WorkerID, pid: Int32) -> Bool {
        guard let index = unreported[pid]?.firstIndex(of: worker) else { return false }
        unreported[pid]?.remove(at: index)
        if unreported[pid]?.isEmpty == true { unreported[pid] = nil }
        killed.remove(pid)
        return true
    }

    /// Takes the supervisor's report.
    ///
    /// - Returns: the workers that awaited it, and the report with what this broker did.
    mutating func reported(_ end: WorkerEnd) -> (workers: [WorkerID], end: WorkerEnd) {
        guard let workers = unreported.removeValue(forKey: end.pid) else {
            if reports.count < Self.mostReports { reports[end.pid] = end }
            return ([], end)
        }
        var end = end
        if killed.remove(end.pid) != nil { end.wasKilledByBus = true }
        return (workers, end)
    }
}
