internal import EarshotLoop

/// How long a child that died waits for its next life: none the first time, then 0.1 s and twice as long each time
/// up to 10 s; a life of 10 s makes it the first time again.
struct RestartDelay {
    static let shortest = Duration.milliseconds(100)
    static let longest = Duration.seconds(10)

    private var next = Duration.zero

    /// A life of `lived` has ended: how long to wait.
    mutating func lifeEnded(after lived: Duration) -> Duration {
        if lived >= RestartDelay.longest { next = .zero }
        let delay = next
        next = min(max(next * 2, RestartDelay.shortest), RestartDelay.longest)
        return delay
    }
}
