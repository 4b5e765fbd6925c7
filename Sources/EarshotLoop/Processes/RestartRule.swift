/// When a child that died is started again, and whether its place is failing.
///
/// `well -> failing -> well`: a life shorter than `goodLife` ends in a quick death. The first one is followed by the
/// next life at once; then the pauses double from `shortestPause` to `longestPause`, and chance takes up to half of
/// each away, so that children that died together do not start together for ever. After `mostQuickDeaths` in a row the
/// place is failing: it is still filled again after each pause, and is well again with the first good life.
public struct RestartRule: Equatable, Sendable {
    /// A life so long makes good what was before: the cause of its end is another one.
    public static let goodLife = Duration.seconds(10)
    public static let shortestPause = Duration.milliseconds(100)
    public static let longestPause = Duration.seconds(30)
    /// So many in a row are no accident: two flights that are poison kill four times at most.
    public static let mostQuickDeaths = 5

    /// Quick deaths since the last good life.
    public private(set) var quickDeaths = 0

    public init() {}

    public var isFailing: Bool { quickDeaths >= Self.mostQuickDeaths }

    /// A life of `lived` has ended; one that could not begin has lived not at all.
    ///
    /// - Returns: how long to wait with the next one.
    public mutating func lifeEnded(
        after lived: Duration, using generator: inout some RandomNumberGenerator
    ) -> Duration {
        guard lived < Self.goodLife else {
            quickDeaths = 0
            return .zero
        }
        quickDeaths += 1
        guard quickDeaths > 1 else { return .zero }
        var pause = Self.shortestPause
        for _ in 2..<quickDeaths where pause < Self.longestPause { pause *= 2 }
        return min(pause, Self.longestPause) * Double.random(in: 0.5...1, using: &generator)
    }

    /// The present life has lasted for `goodLife`.
    public mutating func livesWell() { quickDeaths = 0 }
}
