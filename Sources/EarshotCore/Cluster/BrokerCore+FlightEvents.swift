internal import EarshotHTTP
internal import EarshotWire

/// Event of a flight or an attempt that the cluster observes.
enum FlightEvent {
    /// An origin refuses requests, and asks for a pause of this length, if it names one.
    case refused(Handle<Flight>, asked: RetryAfter?)
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

extension BrokerCore {
    /// Reports an event of a flight. A broker without a cluster only makes this test.
    ///
    /// The cluster observes the event at once. In a list of the pass it would be too late: the same event may queue the
    /// flight again, and asks then whether it has a claim.
    @inline(__always)
    mutating func report(_ event: @autoclosure () -> FlightEvent) {
        if records.cluster != nil { observe(event()) }
    }

    /// Reports the failure of an attempt that ends no request, and drops its response.
    mutating func reportFailure(of flight: Handle<Flight>, _ outcome: Outcome, allowed: Int? = nil) {
        guard records.cluster != nil else {
            if let response = outcome.response { records.drop(response) }
            return
        }
        let number = records.outcomes.insert(outcome)
        records.outcomes.retain(number)
        observe(.concluded(flight, number, allowed: allowed))
        records.release(number)
    }

    @inline(never)
    private mutating func observe(_ event: FlightEvent) {
        switch event {
        case .refused(let flight, let asked): reportRefusal(to: flight, asked: asked)
        case .redirected(let flight, let response): publish(flight, withoutBody: response)
        case .concluded(let flight, let outcome, let allowed): publish(flight, outcome, allowed: allowed)
        case .withheld(let flight): withhold(flight)
        case .cancelled(let flight, let attempt): clusterCancels(flight, attempt)
        case .attemptEnded(let attempt): records.cluster?.value.book.attemptEnded(attempt)
        case .left(let flight): leaveCluster(flight)
        }
    }

    // MARK: Questions

    /// Whether no flight waits for another node.
    @inline(__always)
    var isClusterIdle: Bool { records.cluster.map { $0.value.charges.isEmpty && $0.value.pulls.isEmpty } ?? true }
}
