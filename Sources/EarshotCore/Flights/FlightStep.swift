internal import EarshotHTTP

/// Next step of a flight after an attempt, or after an answer of the cache.
enum FlightStep {
    /// Nothing more: the flight waits, or has ended.
    case done
    /// To decide about a response of an origin or of the cache.
    case judge(Outcome.Response, HeaderFields)
    /// To queue the flight and its requests.
    case queue(isFirst: Bool)
    /// To end the flight with this outcome, unless a stored response replaces a failure.
    indirect case conclude(Outcome)
    /// To free the flight, which nothing needs any more.
    case forget
    /// To fail these flights, whose chains of redirects have become too long.
    case failRedirected([Handle<Flight>])
}
