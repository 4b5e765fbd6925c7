/// What libcurl last said about its one timer.
public enum TimeoutChange: Hashable, Sendable {
    /// There is nothing to wait for.
    case cancel
    /// `Multi.timerFired()` is due so many milliseconds from now; 0 is at once.
    case after(milliseconds: Int)
}
