internal import EarshotHTTP
internal import EarshotWire

/// Next step of a flight after an attempt, or after an answer of the cache or of another node.
///
/// An outcome in a step is in the store already: the step has one reference to it. By value it would be copied from
/// step to step.
enum FlightStep {
    /// Start of the next attempt.
    enum Start {
        case atOnce
        /// When the cool-down of the origin ends.
        case afterCoolDown
        case at(Tick)
    }

    /// Nothing more: the flight waits, or has ended.
    case done
    /// To decide about a response of an origin or of the cache.
    indirect case judge(Outcome.Response, HeaderFields)
    /// To wait for the flight of a redirect's target.
    indirect case follow(HTTPRequest, status: Int)
    /// To queue the requests of a redirected flight, and to fail the flights whose chains of redirects are too long.
    case followed(tooFar: [Handle<Flight>])
    /// To repeat the flight after an attempt with this outcome, with which some of its requests end.
    case retry(after: Handle<Outcome>, ending: [Handle<Interest>], Start)
    /// To queue the flight again after its body exceeded the size limits of these requests, which fail.
    case tooLarge(for: [Handle<Interest>])
    /// To queue the flight and its requests.
    case queue(isFirst: Bool)
    /// To end the flight with this outcome, unless a stored response replaces a failure.
    case conclude(Handle<Outcome>)
    /// To free the flight, which nothing needs any more.
    case forget

    /// The end of a flight with a failure that has no response. A detail replaces the standard sentence of the code.
    static func failure(
        _ code: FailureCode, of flight: Handle<Flight>, detail: String? = nil, in records: inout Records
    ) -> FlightStep {
        .conclude(records.outcomes.insertRetained(.failure(code, of: flight, detail: detail, in: &records)))
    }
}
