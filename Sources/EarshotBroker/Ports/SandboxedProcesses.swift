internal import DequeModule
internal import EarshotLoop

/// Workers or gateways in a sandbox, which get no rights of their user: the kernel does not forbid them to connect to named
/// Unix sockets. Workers are no clients, and connect once.
///
/// A worker that executes code of a server could otherwise request the content of any file of the user as a certificate, or take
/// the work of other workers. It cannot start a process with another ID, because its sandbox forbids that.
struct SandboxedProcesses {
    /// Maximum number of ended processes kept. A connection outlives its process until it is accepted.
    private static let mostEnded = 16

    private var processes: [Int32: ProcessDescriptor] = [:]
    /// Process IDs in the order of their insertion.
    private var insertionOrder: Deque<Int32> = []

    /// Adds a running process.
    mutating func insert(_ process: ProcessDescriptor) {
        insertionOrder.removeAll { $0 == process.pid }
        for pid in insertionOrder.filter({ processes[$0]?.hasEnded != false }).dropLast(Self.mostEnded) {
            processes[pid] = nil
            insertionOrder.removeAll { $0 == pid }
        }
        processes[process.pid] = process
        insertionOrder.append(process.pid)
    }

    /// Whether a running process is one of them.
    func contains(_ pid: Int32) -> Bool { processes[pid].map { !$0.hasEnded } ?? false }

    /// Whether one of them made a connection, perhaps before its end. A process that has reused the ID did not.
    ///
    /// - Parameter socket: descriptor of the connection.
    func contains(_ pid: Int32, _ socket: Int32) -> Bool {
        guard let known = processes[pid] else { return false }
        guard known.hasEnded, let peer = try? ProcessDescriptor(peerOf: socket, pid: pid) else { return true }
        return peer.hasEnded
    }
}

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
