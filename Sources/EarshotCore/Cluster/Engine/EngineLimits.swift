/// Bounds and times of the engine's calls, for the core and for `EarshotCluster`.
public enum EngineLimits {
    /// Maximum number of flights in one call, so that a script runs for less than a millisecond or two.
    public static let batch = 64
    /// Maximum number of bytes of a record. A URL has at most 8 KiB, and so have the fields that may be shared.
    public static let recordBytes = 16_384
    /// Maximum number of bytes of a result. It has the header fields of a response and no body.
    public static let resultBytes = 65_536
    /// Maximum number of bytes of the records or results in one call.
    public static let callBytes = 262_144
    /// Lease of a node. Its flights run elsewhere after its death and this time.
    public static let leaseMilliseconds = 3_000
    /// Interval of heartbeats: two may be lost.
    public static let heartbeatMilliseconds = 1_000
    /// Interval in which open wants and attempts are asserted again: twenty leases. A loss of data or of messages shows with
    /// the next heartbeats, and is followed by assertions at once.
    public static let assertionMilliseconds = 60_000
    /// The same for attempts that serve other nodes only: the engine tells with the answer whether one still wants it.
    public static let hostingMilliseconds = 2_000
    /// Longest time between two questions for flights, while free slots wait.
    public static let questionMilliseconds = 2_000
    /// Time for which results are kept for wants that had begun before: from one to two of these times. So nodes with the
    /// same backlog in different orders fetch each URL once, also if the backlog takes minutes.
    public static let resultMilliseconds = 120_000
    /// The same while there are more than `mostResults` younger ones. Longer than a loss of messages stays unnoticed.
    public static let crowdedResultMilliseconds = 10_000
    /// Number of younger results that shortens the time of all.
    public static let mostResults = 50_000
    /// Time without an engine after which nodes fetch without coordination.
    public static let patienceMilliseconds = 5_000
    /// First and longest pause of an origin's cool-down.
    public static let firstCoolDownMilliseconds = 1_000
    public static let longestCoolDownMilliseconds = 60_000
    /// Concurrent attempts at one origin. Lua has exact integers to 2^53 only, and a larger limit limits nothing.
    public static let originLimits = 1...1_000_000
    /// Spacing of starts, pauses that origins ask for, and ages of wants: at most a day. A longer `Retry-After` helps
    /// no request, because its deadline passes before.
    public static let intervalMilliseconds = 0...86_400_000
    /// Milliseconds of waiting that one class outweighs in the shared queue.
    public static let classMilliseconds = 5_000
    /// Milliseconds by which a queued flight counts as older for a node that wants it itself: its body then stays there.
    public static let ownMilliseconds = 1_000
}
