internal import EarshotHTTP
internal import EarshotWire

/// Event of a flight or an attempt that the cluster observes.
enum FlightEvent {
    /// An origin refuses requests, and asks for a pause of this length, if it names one.
    case refused(Handle<Flight>, retryAfter: RetryAfter?)
    /// An attempt has ended with a response whose body no node needs.
    case redirected(Handle<Flight>, Outcome.Response)
    /// An attempt has ended with this outcome, also if another one follows. `allowed` is the size limit that its body
    /// exceeded.
    case concluded(Handle<Flight>, Handle<Outcome>, allowed: Int?)
    /// Other nodes may not have the response.
    case withheld(Handle<Flight>)
    /// An attempt is being cancelled.
    case cancelled(Handle<Flight>, AttemptID)
    /// A worker has confirmed the end of an attempt, or has died.
    case attemptEnded(AttemptID)
    /// The flight ends, or waits without requests for the end of its deferred cancellation.
    case left(Handle<Flight>)
}
