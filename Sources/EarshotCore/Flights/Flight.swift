package import EarshotHTTP
internal import EarshotWire

/// One coalesced fetch. There may be a million, so state that few flights need is kept elsewhere.
package struct Flight {
    /// State machine:
    ///
    /// ```
    /// queued → running → backingOff → queued
    /// queued → claiming → running                   (the engine of a cluster decides about the start)
    /// claiming → queued, backingOff, following      (returned, or with the result of another node)
    /// asking, queued, running, ended → asking       (a stored response is looked up or read)
    /// asking, queued, running, ended → queued       (waits for the next attempt)
    /// asking, queued, running, ended → following    (redirected)
    /// asking, queued, running, following → ended    (the cancellation is deferred)
    /// any → ended                                   (its requests end, in slices if there are many)
    /// ```
    ///
    /// A flight is freed in any phase when its last interest leaves. A flight whose cancellation is deferred becomes
    /// `ended` when its response arrives. It is then freed or, if a request rejoins it, answered or `queued` again.
    package enum Phase: Equatable {
        /// Waits for a lookup in the cache, or for a body to be read from it.
        case asking
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
    private final class RareFields {
        let method: HTTPMethod
        let fields: HeaderFields
        let route: Route
        let jar: String?
        let variant: String
        let redirect: RedirectMode
        /// Partition of flights and stored responses, for redirects to inherit; see `Principals`.
        let partition: String?
        let isAlone: Bool
        let isExact: Bool
        let body: BodyID?
        let mode: CacheMode

        init(
            _ request: HTTPRequest, _ redirect: RedirectMode, _ key: FlightKey, _ partition: String?, isAlone: Bool,
            body: BodyID?
        ) {
            mode = key.mode
            isExact = key.isExact
            method = request.method
            fields = request.fields
            variant = key.variant
            route = request.route
            jar = request.jar
            self.redirect = redirect
            self.partition = partition
            self.isAlone = isAlone
            self.body = body
        }
    }

    /// Redirects and failed attempts, which few flights have.
    struct Extras {
        /// Flights that were redirected to it.
        var parents = Chain<Flight>()
        /// Status of its redirect.
        var redirectStatus = 0
        /// Largest number of decoded bytes that a failed attempt received.
        var mostReceivedBytes = 0
        /// Failed attempts that may be retried.
        var failures: UInt8 = 0
        /// Failed attempts since the latest one that extended the body, that one included.
        var failedAttempts: UInt8 = 0
        /// Number of workers that died while they ran it.
        var workerDeaths: UInt8 = 0
        /// Whether the flight ran isolated, or alone after an earlier death, at the latest death of its worker.
        var isSuspected = false
    }

    let id: UInt64
    package let url: FetchURL
    /// nil for a plain GET.
    private var rareFields: RareFields?
    /// Hash of its key.
    private(set) var keyHash: UInt32
    /// Its origin, separately for each set of credentials.
    package var scope: Handle<OriginScope>
    /// Requests that wait for it directly.
    var interests = Chain<Interest>()
    /// Longest timeout that one of its interests allows.
    var timeoutMilliseconds: UInt32 = 0
    /// Attempts assigned to workers.
    package var attempts: UInt32 = 0
    package private(set) var phase = Phase.queued
    var retries: UInt8 = 0
    /// Whether its last worker died and it has not survived isolation since.
    package var isSuspect = false
    /// Whether an attempt failed in a way that HTTP/2 may have caused. Later attempts then use HTTP/1.1.
    var avoidsHTTP2 = false
    /// Whether the cache revalidates a stale response with it.
    var isRevalidation = false
    /// Whether other nodes of the cluster want its result.
    var isHosted = false
    /// Whether the table has extras of it.
    var hasExtras = false

    /// Changes the phase. Called by `FlightTable`, which counts the phases.
    mutating func enter(_ next: Phase) {
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
        case (.asking, .backingOff), (.queued, .backingOff), (.ended, .backingOff): false
        case (.asking, _), (.queued, _), (.running, _), (.ended, _): true
        case (.backingOff, _), (.following, _): false
        }
    }

    var request: HTTPRequest {
        HTTPRequest(method: method, url: url, fields: fields, route: route, jar: jar)
    }

    var method: HTTPMethod { rareFields?.method ?? .get }

    var route: Route { rareFields?.route ?? Route() }

    var jar: String? { rareFields?.jar }

    /// Request fields that a client sets.
    var fields: HeaderFields { rareFields?.fields ?? HeaderFields() }

    var isRunning: Bool { if case .running = phase { true } else { false } }

    var redirect: RedirectMode { rareFields?.redirect ?? .follow }

    var partition: String? { rareFields?.partition }

    /// Whether it serves one request, and no other may join it.
    var isAlone: Bool { rareFields?.isAlone ?? false }

    /// Whether anonymous requests of several users can have joined it.
    var isOpenToUsers: Bool { partition == nil && !isAlone && CredentialRule.standard.isAnonymous(request) }

    /// Whether its requests have all fields in common, see `FlightKey`.
    var isExact: Bool { rareFields?.isExact ?? false }

    /// Body of the request.
    var body: BodyID? { rareFields?.body }

    var mode: CacheMode { rareFields?.mode ?? .default }

    /// Takes the mode of a key that is otherwise equal.
    mutating func takeMode(of key: FlightKey) {
        rareFields = RareFields(request, redirect, key, partition, isAlone: isAlone, body: body)
    }

    /// Takes a key that no request has, in another partition.
    mutating func isolate(in partition: String) {
        let key = FlightKey(request, redirect: redirect, partition: partition, alone: id, mode: mode, isExact: isExact)
        rareFields = RareFields(request, redirect, key, partition, isAlone: isAlone, body: body)
        keyHash = key.hash
    }

    var variant: String { rareFields?.variant ?? "" }

    var key: FlightKey { FlightKey(self) }

    /// Whether its key equals `key`; computed without making the key.
    func has(_ key: FlightKey) -> Bool {
        url.description == key.url && variant == key.variant && mode == key.mode
    }
}

extension Flight {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// - Parameter key: the `FlightKey` of the other arguments.
    init(
        id: UInt64, request: HTTPRequest, redirect: RedirectMode, partition: String?, key: FlightKey,
        scope: Handle<OriginScope>, isAlone: Bool, body: BodyID?
    ) {
        let isPlain = key.variant.isEmpty && key.mode == .default
        self.init(
            id: id, url: request.url,
            rareFields: isPlain
                ? nil : RareFields(request, redirect, key, partition, isAlone: isAlone, body: body),
            keyHash: key.hash, scope: scope)
    }
}

extension Flight: Generational {
    var generation: UInt64 { id }
}

/// Reference to a flight in timers, lists and requests to the shell, which may outlive the flight.
public struct FlightName: Equatable, Sendable {
    package let reference: GenerationalHandle<Flight>
}
