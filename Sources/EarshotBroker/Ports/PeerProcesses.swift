internal import EarshotLoop
internal import Glibc

/// Processes of the connected peers, each watched for its end. A connection can outlive its process in a forked child.
final class PeerProcesses {
    private struct Watched {
        let handle: ProcessDescriptor
        let registration: EventLoop.Registration
        var peers: Set<UInt64> = []
    }

    private let loop: EventLoop
    private let onEnd: (Set<UInt64>) -> Void
    private var processes: [Int32: Watched] = [:]

    /// - Parameter onEnd: Called from the loop with the peers of a process that has ended.
    init(_ loop: EventLoop, onEnd: @escaping (Set<UInt64>) -> Void) {
        self.loop = loop
        self.onEnd = onEnd
    }

    /// Watches the process at the other end of `descriptor`.
    ///
    /// - Returns: false if the process has already ended.
    func watch(_ pid: Int32, for peer: UInt64, _ descriptor: Int32) -> Bool {
        guard pid > 0 else { return true }
        // If the watched process has ended unnoticed, its process ID was reused.
        if processes[pid]?.handle.hasEnded == true { ended(pid) }
        if processes[pid] != nil {
            processes[pid]?.peers.insert(peer)
            return true
        }
        do throws(SystemError) {
            let handle = try ProcessDescriptor(peerOf: descriptor, pid: pid)
            let registration = try loop.add(handle.descriptor, .readable) { [unowned self] _ in ended(pid) }
            processes[pid] = Watched(handle: handle, registration: registration, peers: [peer])
            return true
        } catch {
            // Without a process descriptor, only the end of the connection reports the loss.
            return ![ESRCH, EINVAL].contains(error.number)
        }
    }

    /// Stops watching for a peer that is gone.
    func forget(_ peer: UInt64, of pid: Int32) {
        processes[pid]?.peers.remove(peer)
        guard let process = processes[pid], process.peers.isEmpty else { return }
        loop.remove(process.registration)
        processes[pid] = nil
    }

    func kill(_ pid: Int32) { processes[pid]?.handle.send(SIGKILL) }

    /// Returns a separate handle for a watched process; nil if it has ended.
    func liveProcess(_ pid: Int32) -> ProcessDescriptor? {
        guard let watched = processes[pid]?.handle, let process = try? ProcessDescriptor(pid: pid) else { return nil }
        // Checked last: while the watched process lives, its process ID is not reused.
        return watched.hasEnded ? nil : process
    }

    private func ended(_ pid: Int32) {
        guard let process = processes.removeValue(forKey: pid) else { return }
        loop.remove(process.registration)
        onEnd(process.peers)
    }
}
