/// Single-line messages between the supervisor and its broker or gateway, other than settings and crash loops.
public enum SupervisorWord {
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
    /// The gateway accepts connections.
    public static let listening = "listening"
}
