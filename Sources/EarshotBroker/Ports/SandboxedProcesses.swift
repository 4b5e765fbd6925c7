internal import EarshotLoop

/// Workers in a sandbox, which may neither be clients nor connect twice: the kernel does not forbid them to connect to named Unix
/// sockets.
///
/// A worker that executes code of a server could otherwise request the content of any file of the user as a certificate, or take
/// the work of other workers. It cannot start a process with another ID, because its sandbox forbids that.
struct SandboxedProcesses {
    private var processes: [Int32: ProcessDescriptor] = [:]

    /// Adds a running process. Processes that have ended are removed, so the workers bound their number.
    mutating func insert(_ process: ProcessDescriptor) {
        processes = processes.filter { !$0.value.hasEnded }
        processes[process.pid] = process
    }

    /// Whether a process is one of them. A reused process ID is not.
    func contains(_ pid: Int32) -> Bool { processes[pid].map { !$0.hasEnded } ?? false }
}
