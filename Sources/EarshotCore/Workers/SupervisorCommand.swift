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
