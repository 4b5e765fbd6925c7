/// Single-line messages between the supervisor and its broker or gateway, other than settings and crash loops.
public enum SupervisorWord {
    /// Health check of the supervisor. The broker's loop answers with the same line.
    public static let alive = "alive"
    /// Precedes the number of ready workers. The broker sends it after each change.
    public static let workers = "taken-in"
    /// The supervisor wants a line for each request that ends: `EndedRequest`.
    public static let reportEnds = "report-ends"
    /// The supervisor wants no further lines about ends.
    public static let ignoreEnds = "ignore-ends"
    /// Precedes the proof of the gateway. The supervisor sends it to each broker and to the gateway.
    public static let proof = "gateway-proof"
    /// The gateway accepts connections.
    public static let listening = "listening"
}
