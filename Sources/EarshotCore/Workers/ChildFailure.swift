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
