public import EarshotWire

/// Single-line messages between the supervisor and its broker or gateway, other than settings and crash loops.
public enum SupervisorCommand {
    /// Health check of the supervisor. The broker's loop answers with the same line.
    public static let alive = "alive"
    /// Precedes the number of ready workers. The broker sends it after each change.
    public static let workers = "taken-in"
    /// Precedes the process ID of a worker of an earlier broker that does not say READY. The supervisor kills it.
    public static let killWorker = "kill-worker"
    /// The supervisor wants a line for each request that ends: `EndedRequest`.
    public static let reportEnds = "report-ends"
    /// The supervisor wants no further lines about ends.
    public static let ignoreEnds = "ignore-ends"
    /// Precedes the proof of the gateway. The supervisor sends it to each broker and to the gateway.
    public static let proof = "gateway-proof"
    /// Precedes the process ID of a gateway. The supervisor sends it to the broker before it gives that gateway a proof.
    public static let gateway = "gateway-pid"
    /// Precedes principals of valid keys, separated by spaces. The gateway sends them after each change, in several lines.
    public static let keys = "keys"
    /// Ends the principals of valid keys.
    public static let keysEnd = "keys-end"
    /// Precedes the proof of the HTTP door. The supervisor sends it to each broker and to the door.
    public static let doorProof = "door-proof"
    /// Precedes the addresses at which the HTTP door listens. The door sends it to the supervisor, and that to the broker.
    public static let doorListening = "door-listening"
    /// Precedes the numbers of connections, requests and refusals of the door, on the same way.
    public static let doorCounts = "door-counts"
    /// Precedes the setting `http-wait` in milliseconds. The supervisor sends it to the door after each change.
    public static let doorWait = "door-wait"
    /// The gateway accepts connections.
    public static let listening = "listening"
}

/// What the supervisor reports to the broker about the HTTP door.
public enum DoorEvent: Equatable, Sendable {
    /// Secret with which the door proves itself.
    case proof(GatewayProof)
    /// Addresses at which it listens: a new process, or none.
    case listening([String])
    /// Its connections now, and its requests and refusals since it listens.
    case counts(connections: Int, requests: Int, refused: Int)

    /// Parses a line; nil for an invalid one.
    public init?(line: String) {
        let words = line.split(separator: " ").map(String.init)
        switch words.first {
        case SupervisorCommand.doorProof:
            guard words.count == 2, let proof = GatewayProof(words[1]) else { return nil }
            self = .proof(proof)
        case SupervisorCommand.doorListening: self = .listening(Array(words.dropFirst()))
        case SupervisorCommand.doorCounts:
            let counts = words.dropFirst().compactMap { Int($0) }
            guard counts.count == 3, counts.allSatisfy({ $0 >= 0 }) else { return nil }
            self = .counts(connections: counts[0], requests: counts[1], refused: counts[2])
        default: return nil
        }
    }
}

/// Latest state of the HTTP door.
public struct DoorReport: Equatable, Sendable {
    package var addresses: [String]
    package var connections = 0
    package var requests = 0
    package var refused = 0
}

/// Crash loop of a child of the supervisor: one process after another dies soon after its start. The broker reports it
/// in QUERY `workers`.
public struct ChildFailure: Equatable, Sendable {
    /// `broker`, `worker`, `gateway`, `node-gateway`, `puller` or `http`.
    public let role: String
    /// Number of quick deaths in a row.
    public let deaths: Int
    /// Time of the first of them, in RFC 3339, UTC.
    public let since: String
    /// End of the last process: `signal 9`, `exit code 1`.
    public let lastEnd: String

    public init(role: String, deaths: Int, since: String, lastEnd: String) {
        self.role = role
        self.deaths = deaths
        self.since = since
        self.lastEnd = lastEnd
    }

    // MARK: Between the processes of a bus

    /// Line that the supervisor sends after the `line`s of all crash loops.
    public static let end = "failing"

    /// The crash loop as one line.
    public var line: String { "\(role) \(deaths) \(since) \(lastEnd)" }

    /// Parses a line; nil for an invalid one.
    public init?(line: String) {
        let words = line.split(separator: " ", maxSplits: 3)
        guard words.count == 4, let deaths = Int(words[1]) else { return nil }
        self.init(role: String(words[0]), deaths: deaths, since: String(words[2]), lastEnd: String(words[3]))
    }
}

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
