internal import EarshotLoop

/// Processes of the gateways, whose connections get no rights of the user that runs them: each session proves its principal.
///
/// A gateway reads bytes of strangers, and runs as the broker's user. If it executes foreign code, only its process ID tells
/// it from other programs of that user. It cannot start a process with another ID, because its sandbox forbids that.
///
/// The supervisor names each gateway before that accepts a connection. So a look-up that reads the supervisor's lines first
/// knows each gateway that may execute foreign code.
final class GatewayProcesses {
    private var processes = SandboxedProcesses()
    /// Reads pending lines of the supervisor.
    var readSupervisor: () -> Void = {}

    /// Adds a running process.
    func insert(_ pid: Int32) {
        // It has ended if it cannot be opened.
        if let process = try? ProcessDescriptor(pid: pid) { processes.insert(process) }
    }

    /// Whether a gateway made an accepted connection.
    ///
    /// - Parameter socket: descriptor of the connection.
    func contains(_ pid: Int32, _ socket: Int32) -> Bool {
        readSupervisor()
        return processes.contains(pid, socket)
    }
}
