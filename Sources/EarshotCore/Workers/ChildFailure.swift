/// A place for a child of the supervisor in which one after the other dies soon after its start. The broker tells of it
/// who asks.
public struct ChildFailure: Equatable, Sendable {
    /// `broker` or `worker`.
    public let role: String
    /// Quick deaths in a row.
    public let deaths: Int
    /// When the first of them was: RFC 3339, UTC.
    public let since: String
    /// How the last one ended: `signal 9`, `exit code 1`.
    public let lastEnd: String

    public init(role: String, deaths: Int, since: String, lastEnd: String) {
        self.role = role
        self.deaths = deaths
        self.since = since
        self.lastEnd = lastEnd
    }

    // MARK: Between the processes of a bus

    /// What follows the `line`s of all places that fail, which a supervisor says to its broker at once.
    public static let end = "failing"

    /// A line of its own.
    public var line: String { "\(role) \(deaths) \(since) \(lastEnd)" }

    /// What such a line says; nil if it is none.
    public init?(line: String) {
        let words = line.split(separator: " ", maxSplits: 3)
        guard words.count == 4, let deaths = Int(words[1]) else { return nil }
        self.init(role: String(words[0]), deaths: deaths, since: String(words[2]), lastEnd: String(words[3]))
    }
}
