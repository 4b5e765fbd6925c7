package import EarshotHTTP
internal import EarshotWire

/// One coalesced fetch. There may be a million, so state that few flights need is kept elsewhere.
package struct Flight {
    /// State machine:
    ///
    /// ```
    /// queued → running → backingOff → queued
    /// queued → claiming → running                      (the engine of a cluster decides about the start)
    /// claiming → queued, backingOff, following         (returned, or with the result of another node)
    /// lookingUp, queued, running, ended → lookingUp    (a stored response is looked up or read)
    /// lookingUp, queued, running, ended → queued       (waits for the next attempt)
    /// lookingUp, queued, running, ended → following    (redirected)
    /// lookingUp, queued, running, following → ended    (the cancellation is deferred)
    /// any → ended                                      (its requests end, in slices if there are many)
    /// ```
    ///
    /// A flight is freed in any phase when its last interest leaves. A flight whose cancellation is deferred becomes
    /// `ended` when its response arrives. It is then freed or, if a request rejoins it, answered or `queued` again.
    package enum Phase: Equatable {
        /// Waits for a lookup in the cache, or for a body to be read from it.
        case lookingUp
        case queued
        /// Waits until the engine of the cluster grants it to this node, or for the result of another node.
        case claiming
        case running(worker: Handle<WorkerSession>)
        /// Waits for its next attempt until the end of its pause.
        case backingOff
        /// Was redirected, and waits for the outcome of the child flight.
        case following(child: Handle<Flight>)
        /// Has its outcome, which waits for a request that may rejoin it, or with which its requests end.
        case ended
    }

    /// Properties that a plain GET lacks.
    private final class NonDefaultProperties {
        let method: HTTPMethod
        let headerFields: HeaderFields
        let route: Route
        let jar: String?
        let variant: String
        let redirect: RedirectMode
        /// Partition of flights and stored responses, for redirects to inherit; see `Principals`.
        let partition: String?
        let servesSingleRequest: Bool
        let requiresEqualFields: Bool
        let body: BodyID?
        let cacheMode: CacheMode

        init(
            _ request: HTTPRequest, _ redirect: RedirectMode, _ key: FlightKey, _ partition: String?,
            servesSingleRequest: Bool,
            body: BodyID?
        ) {
            cacheMode = key.cacheMode
            requiresEqualFields = key.requiresEqualFields
            method = request.method
            headerFields = request.fields
            variant = key.variantText
            route = request.route
            jar = request.cookieJarOwner
            self.redirect = redirect
            self.partition = partition
            self.servesSingleRequest = servesSingleRequest
            self.body = body
        }
    }

    /// Redirects and failed attempts, which few flights have.
    struct RedirectAndFailureState {
        /// Flights that were redirected to it.
        var parentFlights = LinkedList<Flight>()
        /// Status of its redirect.
        var redirectStatus = 0
        /// Largest number of decoded bytes that a failed attempt received.
        var maximumReceivedBytes = 0
        /// Failed attempts that may be retried.
        var retryableFailureCount: UInt8 = 0
        /// Failed attempts since the latest one that extended the body, that one included.
        var failedAttemptsWithoutProgress: UInt8 = 0
        /// Number of workers that died while they ran it.
        var workerDeaths: UInt8 = 0
        /// Whether the flight ran isolated, or alone after an earlier death, at the latest death of its worker.
        var wasIsolatedAtWorkerDeath = false
    }

    let id: UInt64
    package let url: FetchURL
    /// nil for a plain GET.
    private var nonDefaultProperties: NonDefaultProperties?
    /// Hash of its key.
    private(set) var keyHash: UInt32
    /// Its origin, separately for each set of credentials.
    package var originScope: Handle<OriginScope>
    /// Requests that wait for it directly.
    var interests = LinkedList<Interest>()
    /// Longest timeout that one of its interests allows.
    var timeoutMilliseconds: UInt32 = 0
    /// Attempts assigned to workers.
    package var assignedAttemptCount: UInt32 = 0
    package private(set) var phase = Phase.queued
    var maximumRetries: UInt8 = 0
    /// Whether its last worker died and it has not survived isolation since.
    package var isSuspectedOfWorkerDeath = false
    /// Whether an attempt failed in a way that HTTP/2 may have caused. Later attempts then use HTTP/1.1.
    var avoidsHTTP2 = false
    /// Whether the cache revalidates a stale response with it.
    var isRevalidation = false
    /// Whether other nodes of the cluster want its result.
    var isAwaitedByOtherNodes = false
    /// Whether the table has redirects or failures of it.
    var hasRedirectsOrFailures = false

    /// Changes the phase. Called by `FlightTable`, which counts the phases.
    mutating func transition(to next: Phase) {
        precondition(Self.isLegal(from: phase, to: next), "flight \(id) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.queued, .running), (.running, .backingOff), (.backingOff, .queued), (.backingOff, .running): true
        case (.queued, .claiming), (.claiming, .running), (.claiming, .queued), (.claiming, .backingOff): true
        case (.claiming, .following): true
        case (_, .ended): true
        case (.claiming, _), (_, .claiming): false
        case (.lookingUp, .backingOff), (.queued, .backingOff), (.ended, .backingOff): false
        case (.lookingUp, _), (.queued, _), (.running, _), (.ended, _): true
        case (.backingOff, _), (.following, _): false
        }
    }

    var request: HTTPRequest {
        HTTPRequest(method: method, url: url, fields: headerFields, route: route, cookieJarOwner: jar)
    }

    var method: HTTPMethod { nonDefaultProperties?.method ?? .get }

    var route: Route { nonDefaultProperties?.route ?? Route() }

    var jar: String? { nonDefaultProperties?.jar }

    /// Request fields that a client sets.
    var headerFields: HeaderFields { nonDefaultProperties?.headerFields ?? HeaderFields() }

    var isRunning: Bool { if case .running = phase { true } else { false } }

    var redirect: RedirectMode { nonDefaultProperties?.redirect ?? .follow }

    var partition: String? { nonDefaultProperties?.partition }

    /// Whether it serves one request, and no other may join it.
    var servesSingleRequest: Bool { nonDefaultProperties?.servesSingleRequest ?? false }

    /// Whether anonymous requests of several users can have joined it.
    var mayServeSeveralUsers: Bool {
        partition == nil && !servesSingleRequest && CredentialRule.standard.isAnonymous(request)
    }

    /// Whether its requests have all fields in common, see `FlightKey`.
    var requiresEqualFields: Bool { nonDefaultProperties?.requiresEqualFields ?? false }

    /// Body of the request.
    var body: BodyID? { nonDefaultProperties?.body }

    var cacheMode: CacheMode { nonDefaultProperties?.cacheMode ?? .default }

    /// Takes the mode of a key that is otherwise equal.
    mutating func adoptCacheMode(of key: FlightKey) {
        nonDefaultProperties = NonDefaultProperties(
            request, redirect, key, partition, servesSingleRequest: servesSingleRequest, body: body)
    }

    /// Takes a key that no request has, in another partition.
    mutating func isolate(inPartition partition: String) {
        let key = FlightKey(
            request, redirect: redirect, partition: partition, alone: id, mode: cacheMode, isExact: requiresEqualFields)
        nonDefaultProperties = NonDefaultProperties(
            request, redirect, key, partition, servesSingleRequest: servesSingleRequest, body: body)
        keyHash = key.hash
    }

    var variant: String { nonDefaultProperties?.variant ?? "" }

    var key: FlightKey { FlightKey(self) }

    /// Whether its key equals `key`; computed without making the key.
    func hasKey(_ key: FlightKey) -> Bool {
        url.description == key.url && variant == key.variantText && cacheMode == key.cacheMode
    }
}

extension Flight {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// - Parameter key: the `FlightKey` of the other arguments.
    init(
        id: UInt64, request: HTTPRequest, redirect: RedirectMode, partition: String?, key: FlightKey,
        scope: Handle<OriginScope>, servesSingleRequest: Bool, body: BodyID?
    ) {
        let isPlain = key.variantText.isEmpty && key.cacheMode == .default
        self.init(
            id: id, url: request.url,
            nonDefaultProperties: isPlain
                ? nil
                : NonDefaultProperties(
                    request, redirect, key, partition, servesSingleRequest: servesSingleRequest, body: body),
            keyHash: key.hash, originScope: scope)
    }
}

extension Flight: Generational {
    var generation: UInt64 { id }
}

/// Reference to a flight in timers, lists and requests to the shell, which may outlive the flight.
public struct FlightName: Equatable, Sendable {
    package let reference: GenerationalHandle<Flight>
}

/// Next step of a flight after an attempt, or after an answer of the cache or of another node.
///
/// An outcome in a step is in the store already: the step has one reference to it. By value it would be copied from
/// step to step.
enum FlightStep {
    /// Start of the next attempt.
    enum NextAttemptStart {
        case immediately
        /// When the cool-down of the origin ends.
        case afterCoolDown
        case atTime(MonotonicTime)
    }

    /// Nothing more: the flight waits, or has ended.
    case noFurtherAction
    /// To decide about a response of an origin or of the cache.
    indirect case evaluateResponse(Outcome.Response, HeaderFields)
    /// To wait for the flight of a redirect's target.
    indirect case awaitRedirectTarget(HTTPRequest, status: Int)
    /// To queue the requests of a redirected flight, and to fail the flights whose chains of redirects are too long.
    case requeueRedirected(exceedingHopLimit: [Handle<Flight>])
    /// To repeat the flight after an attempt with this outcome, with which some of its requests end.
    case retryFlight(after: Handle<Outcome>, ending: [Handle<Interest>], NextAttemptStart)
    /// To queue the flight again after its body exceeded the size limits of these requests, which fail.
    case requeueAfterOversizedBody(failing: [Handle<Interest>])
    /// To queue the flight and its requests.
    case enqueueFlight(isFirst: Bool)
    /// To end the flight with this outcome, unless a stored response replaces a failure.
    case endFlight(with: Handle<Outcome>)
    /// To free the flight, which nothing needs any more.
    case discardFlight

    /// The end of a flight with a failure that has no response. A detail replaces the standard sentence of the code.
    static func failure(
        _ code: FailureCode, of flight: Handle<Flight>, detail: String? = nil, in records: inout Records
    ) -> FlightStep {
        .endFlight(
            with: records.outcomes.insertWithOneReference(.failure(code, of: flight, detail: detail, in: &records)))
    }
}
