internal import EarshotHTTP
internal import EarshotWire

/// Work that an event of the cluster causes in the core: `Cluster` returns it, and `BrokerCore+Cluster` carries it out.
enum ClusterEffect: Equatable {
    /// The flight may start here.
    case start(LocalFlight)
    /// The flight, which waits for its own slot or runs, serves other nodes too.
    case hosting(LocalFlight)
    /// An attempt for other nodes may start here. The record is a `SharedRequest`. The core calls `ClusterBook.host`, or
    /// `release` for one that cannot be used.
    case host(ClusterKey, FencingToken, record: [UInt8], PriorityClass)
    /// The attempt of another node ended.
    case result(LocalFlight, [UInt8])
    /// No other node wants the flight any longer.
    case abort(LocalFlight)
    /// The flight returns to the local queue, without a claim.
    case requeue(LocalFlight)
    case coolDown(CoolDownNotice)
    /// The node began or ceased to fetch without the engine.
    case mode(isCoordinated: Bool)
}

/// Flight of this core, which may end before its claim.
package struct LocalFlight: Hashable, CustomStringConvertible {
    let reference: GenerationalHandle<Flight>

    package init(_ reference: GenerationalHandle<Flight>) { self.reference = reference }

    var id: UInt64 { reference.generation }

    var name: FlightName { FlightName(reference: reference) }

    package var description: String { "flight \(id)" }
}

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
