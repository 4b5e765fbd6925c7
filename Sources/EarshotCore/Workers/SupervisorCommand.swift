public import EarshotWire

/// Single-line messages between the supervisor and its broker or gateway, other than settings and crash loops.
public enum SupervisorCommand {
    /// Health check of the supervisor. The broker's loop answers with the same line.
    public static let healthCheck = "alive"
    /// Precedes the number of ready workers. The broker sends it after each change.
    public static let readyWorkerCount = "taken-in"
    /// Precedes the process ID of a worker of an earlier broker that does not send READY. The supervisor kills it.
    public static let killWorker = "kill-worker"
    /// The supervisor wants a line for each request that ends: `EndedRequest`.
    public static let startReportingRequestEnds = "report-ends"
    /// The supervisor wants no further lines about ends.
    public static let stopReportingRequestEnds = "ignore-ends"
    /// Precedes the proof of the gateway. The supervisor sends it to each broker and to the gateway.
    public static let gatewayProof = "gateway-proof"
    /// Precedes the process ID of a gateway. The supervisor sends it to the broker before it sends that gateway a
    /// proof.
    public static let gatewayProcessID = "gateway-pid"
    /// Precedes principals of valid keys, separated by spaces. The gateway sends them after each change, in several
    /// lines.
    public static let validKeyPrincipals = "keys"
    /// Ends the principals of valid keys.
    public static let endOfValidKeyPrincipals = "keys-end"
    /// Precedes the proof of the HTTP door. The supervisor sends it to each broker and to the door.
    public static let doorProof = "door-proof"
    /// Precedes the addresses at which the HTTP door listens. The door sends it to the supervisor, and that to the
    /// broker.
    public static let doorListeningAddresses = "door-listening"
    /// Precedes the numbers of connections, requests and refusals of the door, on the same way.
    public static let doorCounts = "door-counts"
    /// Precedes the setting `http-wait` in milliseconds. The supervisor sends it to the door after each change.
    public static let doorWaitMilliseconds = "door-wait"
    /// The gateway accepts connections.
    public static let gatewayListening = "listening"
}

/// Report of the supervisor to the broker about the HTTP door.
public enum HTTPDoorEvent: Equatable, Sendable {
    /// Secret with which the door proves itself.
    case doorProof(GatewayProof)
    /// Addresses at which it listens: a new process, or none.
    case listeningAddresses([String])
    /// Its connections now, and its requests and refusals since it listens.
    case counts(connections: Int, requests: Int, refusedRequests: Int)

    /// Parses a line; nil for an invalid one.
    public init?(line: String) {
        let words = line.split(separator: " ").map(String.init)
        switch words.first {
        case SupervisorCommand.doorProof:
            guard words.count == 2, let proof = GatewayProof(words[1]) else { return nil }
            self = .doorProof(proof)
        case SupervisorCommand.doorListeningAddresses: self = .listeningAddresses(Array(words.dropFirst()))
        case SupervisorCommand.doorCounts:
            let counts = words.dropFirst().compactMap { Int($0) }
            guard counts.count == 3, counts.allSatisfy({ $0 >= 0 }) else { return nil }
            self = .counts(connections: counts[0], requests: counts[1], refusedRequests: counts[2])
        default: return nil
        }
    }
}

/// Latest state of the HTTP door.
public struct HTTPDoorState: Equatable, Sendable {
    package var listeningAddresses: [String]
    package var openConnectionCount = 0
    package var requestCount = 0
    package var refusedRequestCount = 0
}

/// Crash loop of a child of the supervisor: one process after another dies soon after its start. The broker reports it
/// in QUERY `workers`.
public struct ChildCrashLoop: Equatable, Sendable {
    /// `broker`, `worker`, `gateway`, `node-gateway`, `puller` or `http`.
    public let childRole: String
    /// Number of quick deaths in a row.
    public let consecutiveDeathCount: Int
    /// Time of the first of them, in RFC 3339, UTC.
    public let firstDeathAt: String
    /// End of the last process: `signal 9`, `exit code 1`.
    public let lastExitDescription: String

    public init(childRole: String, consecutiveDeathCount: Int, firstDeathAt: String, lastExitDescription: String) {
        self.childRole = childRole
        self.consecutiveDeathCount = consecutiveDeathCount
        self.firstDeathAt = firstDeathAt
        self.lastExitDescription = lastExitDescription
    }

    // MARK: Between the processes of a bus

    /// Line that the supervisor sends after the `supervisorLine`s of all crash loops.
    public static let endOfCrashLoopsLine = "failing"

    /// The crash loop as one line.
    public var supervisorLine: String { "\(childRole) \(consecutiveDeathCount) \(firstDeathAt) \(lastExitDescription)" }

    /// Parses a line; nil for an invalid one.
    public init?(supervisorLine: String) {
        let words = supervisorLine.split(separator: " ", maxSplits: 3)
        guard words.count == 4, let deaths = Int(words[1]) else { return nil }
        self.init(
            childRole: String(words[0]), consecutiveDeathCount: deaths, firstDeathAt: String(words[2]),
            lastExitDescription: String(words[3]))
    }
}

/// End of a worker's process, as its parent reports it. It decides whether one of its transfers is to blame.
///
/// The supervisor sends it to the broker as one line. The kernel does not report the sender of a signal. But it counts
/// the processes that it kills for lack of memory, and the bus knows its own signals. Any other SIGKILL comes from
/// outside.
public struct WorkerExit: Equatable, Sendable {
    /// The word that begins its line.
    public static let lineKeyword = "worker-ended"
    private static let killSignal: Int32 = 9

    /// Process ID.
    public let pid: Int32
    /// Signal that ended the process; nil for an exit.
    public let terminatingSignal: Int32?
    /// Whether the kernel killed a process for lack of memory during the worker's life.
    public let wasKilledForMemory: Bool
    /// Whether the bus itself sent a SIGKILL to it.
    public var wasKilledByBus: Bool

    public init(pid: Int32, terminatingSignal: Int32?, wasKilledForMemory: Bool, wasKilledByBus: Bool) {
        self.pid = pid
        self.terminatingSignal = terminatingSignal
        self.wasKilledForMemory = wasKilledForMemory
        self.wasKilledByBus = wasKilledByBus
    }

    /// Whether somebody killed the process from outside, so that none of its transfers is a suspect.
    var wasKilledFromOutside: Bool { terminatingSignal == Self.killSignal && !wasKilledForMemory && !wasKilledByBus }

    /// SIGKILL from outside, for tests and simulations.
    public static let killedFromOutsideExample = WorkerExit(
        pid: 0, terminatingSignal: killSignal, wasKilledForMemory: false, wasKilledByBus: false)

    // MARK: Between the processes of a bus

    /// The line from the supervisor to the broker.
    public var supervisorLine: String {
        "\(Self.lineKeyword) \(pid) \(terminatingSignal ?? 0) \(wasKilledForMemory ? 1 : 0) \(wasKilledByBus ? 1 : 0)"
    }

    /// Parses a line; nil for an invalid one.
    public init?(supervisorLine: String) {
        let words = supervisorLine.split(separator: " ")
        guard words.count == 5, words[0] == Self.lineKeyword, let pid = Int32(words[1]), let signal = Int32(words[2])
        else {
            return nil
        }
        self.init(
            pid: pid, terminatingSignal: signal == 0 ? nil : signal, wasKilledForMemory: words[3] == "1",
            wasKilledByBus: words[4] == "1")
    }
}
