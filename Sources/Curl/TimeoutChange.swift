/// Latest state of libcurl's single timer.
public enum TimeoutChange: Hashable, Sendable {
    /// The timer is off.
    case cancel
    /// `Multi.timerFired()` is due after this many milliseconds; 0 means immediately.
    case after(milliseconds: Int)
}
