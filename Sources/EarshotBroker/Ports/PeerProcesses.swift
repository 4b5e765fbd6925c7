internal import DequeModule
internal import EarshotLoop
internal import Glibc

/// Processes of the connected peers, each watched for its end. A connection can outlive its process in a forked child.
final class PeerProcesses {
    private struct WatchedProcess {
        let processHandle: ProcessDescriptor
        let registration: EventLoop.Registration
        var peers: Set<UInt64> = []
    }

    private let loop: EventLoop
    private let onProcessEnd: (Set<UInt64>) -> Void
    private var processes: [Int32: WatchedProcess] = [:]

    /// - Parameter onProcessEnd: Called from the loop with the peers of a process that has ended.
    init(_ loop: EventLoop, onProcessEnd: @escaping (Set<UInt64>) -> Void) {
        self.loop = loop
        self.onProcessEnd = onProcessEnd
    }

    /// Watches the process at the other end of `descriptor`.
    ///
    /// - Returns: false if the process has already ended.
    func watch(pid: Int32, for peer: UInt64, socket descriptor: Int32) -> Bool {
        guard pid > 0 else { return true }
        // If the watched process has ended unnoticed, its process ID was reused.
        if processes[pid]?.processHandle.hasEnded == true { processEnded(pid: pid) }
        if processes[pid] != nil {
            processes[pid]?.peers.insert(peer)
            return true
        }
        do throws(SystemError) {
            let handle = try ProcessDescriptor(peerOf: descriptor, pid: pid)
            let registration = try loop.add(handle.descriptor, .readable) { [unowned self] _ in processEnded(pid: pid) }
            processes[pid] = WatchedProcess(processHandle: handle, registration: registration, peers: [peer])
            return true
        } catch {
            // Without a process descriptor, only the end of the connection reports the loss.
            return ![ESRCH, EINVAL].contains(error.number)
        }
    }

    /// Stops watching for a peer that is gone.
    func stopWatching(for peer: UInt64, pid: Int32) {
        processes[pid]?.peers.remove(peer)
        guard let process = processes[pid], process.peers.isEmpty else { return }
        loop.remove(process.registration)
        processes[pid] = nil
    }

    func kill(_ pid: Int32) { processes[pid]?.processHandle.sendSignal(SIGKILL) }

    /// Returns a separate handle for a watched process; nil if it has ended.
    func liveProcess(pid: Int32) -> ProcessDescriptor? {
        guard let watched = processes[pid]?.processHandle, let process = try? ProcessDescriptor(pid: pid) else {
            return nil
        }
        // Checked last: while the watched process lives, its process ID is not reused.
        return watched.hasEnded ? nil : process
    }

    private func processEnded(pid: Int32) {
        guard let process = processes.removeValue(forKey: pid) else { return }
        loop.remove(process.registration)
        onProcessEnd(process.peers)
    }
}

/// Workers or gateways in a sandbox, which get no rights of their user: the kernel does not forbid them to connect to
/// named Unix sockets. Workers are no clients, and connect once.
///
/// A worker that executes code of a server could otherwise request the content of any file of the user as a
/// certificate, or take the work of other workers. It cannot start a process with another ID, because its sandbox
/// forbids that.
struct SandboxedProcesses {
    /// Maximum number of ended processes kept. A connection outlives its process until it is accepted.
    private static let maximumEndedProcesses = 16

    private var processes: [Int32: ProcessDescriptor] = [:]
    /// Process IDs in the order of their insertion.
    private var insertionOrder: Deque<Int32> = []

    /// Adds a running process.
    mutating func insert(_ process: ProcessDescriptor) {
        insertionOrder.removeAll { $0 == process.pid }
        for pid in insertionOrder.filter({ processes[$0]?.hasEnded != false }).dropLast(Self.maximumEndedProcesses) {
            processes[pid] = nil
            insertionOrder.removeAll { $0 == pid }
        }
        processes[process.pid] = process
        insertionOrder.append(process.pid)
    }

    /// Whether a running process is one of them.
    func containsLiveProcess(pid: Int32) -> Bool { processes[pid].map { !$0.hasEnded } ?? false }

    /// Whether one of them made a connection, perhaps before its end. A process that has reused the ID did not.
    ///
    /// - Parameter socket: descriptor of the connection.
    func madeConnection(pid: Int32, socket: Int32) -> Bool {
        guard let known = processes[pid] else { return false }
        guard known.hasEnded, let peer = try? ProcessDescriptor(peerOf: socket, pid: pid) else { return true }
        return peer.hasEnded
    }
}

/// Processes of the gateways, whose connections get no rights of the user that runs them: each session proves its
/// principal.
///
/// A gateway reads bytes of strangers, and runs as the broker's user. If it executes foreign code, only its process ID
/// distinguishes it from other programs of that user. It cannot start a process with another ID, because its sandbox
/// forbids that.
///
/// The supervisor names each gateway before it accepts a connection. So a look-up that reads the supervisor's lines
/// first knows each gateway that may execute foreign code.
final class GatewayProcesses {
    private var processes = SandboxedProcesses()
    /// Reads pending lines of the supervisor.
    var readSupervisorLines: () -> Void = {}

    /// Adds a running process.
    func insert(_ pid: Int32) {
        // It has ended if it cannot be opened.
        if let process = try? ProcessDescriptor(pid: pid) { processes.insert(process) }
    }

    /// Whether a gateway made an accepted connection.
    ///
    /// - Parameter socket: descriptor of the connection.
    func madeConnection(pid: Int32, socket: Int32) -> Bool {
        readSupervisorLines()
        return processes.madeConnection(pid: pid, socket: socket)
    }
}
