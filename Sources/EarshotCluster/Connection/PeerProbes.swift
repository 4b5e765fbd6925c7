public import EarshotLoop

/// Attempts to connect to the addresses at which other nodes serve their bodies, so that a closed or filtered port is
/// noticed before a body is needed. Nothing is sent.
///
/// In each pass of the loop the owner calls ``takeResults()``.
public final class PeerProbes {
    private struct Probe {
        let descriptor: Int32
        let registration: EventLoop.Registration
        let timer: TimerID
    }

    /// Maximum time for a connection.
    private static let timeLimit = Duration.seconds(2)
    /// Maximum number of attempts at a time. Others are made when the engine reports the members again.
    private static let maximumProbes = 64

    private let loop: EventLoop
    private var probes: [String: Probe] = [:]
    private var results: [(address: String, failure: String?)] = []

    public init(on loop: EventLoop) { self.loop = loop }

    deinit {
        for address in Array(probes.keys) { close(address) }
    }

    /// Starts to connect to an address, unless an attempt runs.
    public func start(_ address: String) {
        guard probes[address] == nil, probes.count < Self.maximumProbes else { return }
        guard case .ipAddress(let host, let port)? = EngineAddress(address) else {
            return endProbe(address, failure: "no numeric address with a port")
        }
        do {
            let descriptor = try StreamConnection.connect(to: host, port: port)
            let registration: EventLoop.Registration
            do {
                registration = try loop.add(descriptor, .writable) { [unowned self] _ in
                    endProbe(address, failure: StreamConnection.connectError(of: descriptor).map { "\($0)" })
                }
            } catch {
                UnixSocket.close(descriptor)
                throw error
            }
            let timer = loop.setTimer(after: Self.timeLimit) { [unowned self] in
                endProbe(address, failure: "timed out")
            }
            probes[address] = Probe(descriptor: descriptor, registration: registration, timer: timer)
        } catch {
            endProbe(address, failure: "\(error)")
        }
    }

    /// Removes and returns the results since the last call. A result without a failure is a connection.
    public func takeResults() -> [(address: String, failure: String?)] {
        guard !results.isEmpty else { return [] }
        defer { results = [] }
        return results
    }

    private func endProbe(_ address: String, failure: String?) {
        close(address)
        results.append((address, failure))
        // The owner's pass may be over.
        loop.setTimer(after: .zero) {}
    }

    private func close(_ address: String) {
        guard let probe = probes.removeValue(forKey: address) else { return }
        loop.cancelTimer(probe.timer)
        loop.remove(probe.registration)
        UnixSocket.close(probe.descriptor)
    }
}
