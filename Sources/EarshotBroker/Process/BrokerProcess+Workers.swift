internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// Workers in sandboxes, and ends of workers. The supervisor, their parent, reports how they ended; this process
/// notices them itself, before or after that.
extension BrokerProcess {
    /// Schemes of the workers that the supervisor starts; the last one is that of bodies of other nodes.
    private static let sandboxedSchemes: Set<String> = ["http", "https", "earshot-node"]
    /// Time for the supervisor's report about the end of a worker. It comes within milliseconds, unless the supervisor
    /// hangs.
    private static let reportTimeoutMilliseconds = 1_000
    /// Time for a worker to end after its connection, before it is killed: its end takes some milliseconds.
    private static let workerExitMilliseconds = 100

    /// Time in which the workers of a dead broker must send READY: ten times their longest reconnection delay.
    private static let workerReconnectMilliseconds = 1_000

    /// Bars a worker in a sandbox from the clients' socket, and from a second connection as a worker.
    func barFromSockets(_ process: ProcessDescriptor) {
        clientPort.admission.barredProcesses.insert(process)
        workerPort.admission.barredProcesses.insert(process)
    }

    /// Whether a worker may serve these schemes. One in a sandbox may have been taken over since its first READY, so it
    /// serves no other schemes than then.
    func isPermitted(_ ready: Ready, by worker: UInt64) -> Bool {
        let pid = workerPort.pid(of: worker)
        guard workerPort.admission.barredProcesses.containsLiveProcess(pid: pid),
            !Set(ready.schemes).isSubset(of: Self.sandboxedSchemes)
        else {
            return true
        }
        logger.warning("refused a worker in a sandbox that would serve further schemes", metadata: ["pid": "\(pid)"])
        return false
    }

    /// Delays all starts until each worker that an earlier broker may have had is READY or has ended. Without a
    /// supervisor these are the processes with unfinished files in the spool.
    func awaitWorkers(now: MonotonicTime) {
        let pids = options.supervisorDescriptor == nil ? spool.liveWriterPids() : Set(options.workerPids)
        core.recoverFromBrokerDeath(
            awaiting: pids, until: now.advanced(byMilliseconds: Self.workerReconnectMilliseconds), now: now)
        for pid in pids { watchForProcessEnd(of: pid) }
    }

    private func watchForProcessEnd(of pid: Int32) {
        do {
            let process = try ProcessDescriptor(pid: pid)
            var registration: EventLoop.Registration?
            registration = try loop.add(process.descriptor, .readable) { [unowned self] _ in
                if let registration { loop.remove(registration) }
                core.formerProcessEnded(process.pid, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
            }
        } catch {
            // It has ended, or there is no descriptor to watch it with: then the supervisor reports its end.
            guard ProcessDescriptor.hasEnded(pid: pid) else { return }
            core.formerProcessEnded(pid, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        }
    }

    /// Kills a worker's process. If its connection is lost, the process has a moment to end by itself, and its end is
    /// awaited here; otherwise the port reports it.
    func kill(_ worker: WorkerID) {
        guard let process = workerProcesses.disconnectedProcesses.removeValue(forKey: worker) else {
            let pid = workerPort.pid(of: worker.rawValue)
            logger.warning("killing a worker that does not answer", metadata: ["pid": "\(pid)"])
            workerProcesses.recordKill(pid: pid)
            workerPort.kill(worker.rawValue)
            return
        }
        let pid = process.pid
        let timer = loop.setTimer(after: .milliseconds(Self.workerExitMilliseconds)) { [unowned self] in
            logger.warning("killing a worker that disconnected", metadata: ["pid": "\(pid)"])
            workerProcesses.recordKill(pid: pid)
            process.sendSignal(SIGKILL)
        }
        do {
            var registration: EventLoop.Registration?
            registration = try loop.add(process.descriptor, .readable) { [unowned self] _ in
                if let registration { loop.remove(registration) }
                loop.cancelTimer(timer)
                workerProcessEnded(worker, pid: pid)
                withExtendedLifetime(process) {}
            }
        } catch {
            logger.error("cannot watch for the end of a worker", metadata: ["pid": "\(pid)", "error": "\(error)"])
            core.workerLost(worker, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        }
    }

    /// Handles the end of a worker's process. The core decides about its transfers once the supervisor has reported the
    /// cause.
    func workerProcessEnded(_ worker: WorkerID, pid: Int32) {
        keepPartsOfEndedWorker(worker, pid: pid)
        let report = workerProcesses.takeReport(onPid: pid)
        guard report == nil, core.awaitsProcessEnd(of: worker) else { return removeLostWorker(worker, report) }
        workerProcesses.awaitReport(on: worker, pid: pid)
        _ = loop.setTimer(after: .milliseconds(Self.reportTimeoutMilliseconds)) { [unowned self] in
            if workerProcesses.cancelAwaitedReport(on: worker, pid: pid) { removeLostWorker(worker, nil) }
        }
    }

    /// Handles the supervisor's report about the end of a worker.
    func workerEndReported(_ end: WorkerExit) {
        core.formerProcessEnded(end.pid, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        let (awaiting, end) = workerProcesses.recordReport(end)
        for worker in awaiting { removeLostWorker(worker, end) }
    }

    private func removeLostWorker(_ worker: WorkerID, _ report: WorkerExit?) {
        core.workerLost(worker, end: report, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        // The core holds its attempts no more. Files that none resumes are left.
        removeFilesOfEndedWorkers()
    }
}
