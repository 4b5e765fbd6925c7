/// End of a worker's process, as its parent reports it. It decides whether one of its transfers is to blame.
///
/// The supervisor sends it to the broker as one line. The kernel does not tell the sender of a signal. But it counts the
/// processes that it kills for lack of memory, and the bus knows its own signals. Any other SIGKILL comes from outside.
public struct WorkerEnd: Equatable, Sendable {
    /// The word that begins its line.
    public static let word = "worker-ended"
    private static let kill: Int32 = 9

    /// Process ID.
    public let pid: Int32
    /// Signal that ended the process; nil for an exit.
    public let signal: Int32?
    /// Whether the kernel killed a process for lack of memory during the worker's life.
    public let isOutOfMemory: Bool
    /// Whether the bus itself sent a SIGKILL to it.
    public var wasKilledByBus: Bool

    public init(pid: Int32, signal: Int32?, isOutOfMemory: Bool, wasKilledByBus: Bool) {
        self.pid = pid
        self.signal = signal
        self.isOutOfMemory = isOutOfMemory
        self.wasKilledByBus = wasKilledByBus
    }

    /// Whether somebody killed the process from outside, so that none of its transfers is a suspect.
    var isHarmless: Bool { signal == Self.kill && !isOutOfMemory && !wasKilledByBus }

    /// SIGKILL from outside, for tests and simulations.
    public static let fromOutside = WorkerEnd(pid: 0, signal: kill, isOutOfMemory: false, wasKilledByBus: false)

    // MARK: Between the processes of a bus

    /// The line from the supervisor to the broker.
    public var line: String { "\(Self.word) \(pid) \(signal ?? 0) \(isOutOfMemory ? 1 : 0) \(wasKilledByBus ? 1 : 0)" }

    /// Parses a line; nil for an invalid one.
    public init?(line: String) {
        let words = line.split(separator: " ")
        guard words.count == 5, words[0] == Self.word, let pid = Int32(words[1]), let signal = Int32(words[2]) else {
            return nil
        }
        self.init(
            pid: pid, signal: signal == 0 ? nil : signal, isOutOfMemory: words[3] == "1",
            wasKilledByBus: words[4] == "1")
    }
}
