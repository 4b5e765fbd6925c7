internal import EarshotHTTP
internal import EarshotWire

/// Properties that requests must have in common to share a flight: method, URL, request fields, redirect mode, the
/// client's own key, the route, the cookie jar, and the cache mode unless another is as strict (`CacheMode.stricter`).
/// The key of a flight for one request alone contains a unique number. Credentials are in the URL and the fields, so
/// each trust scope has its own flights.
struct FlightKey: Hashable {
    let url: String
    /// All other properties except the mode; empty for a plain GET without fields.
    let variant: String
    var mode: CacheMode
    /// Hash of `url` and `variant` without the mode, because a lookup tries several modes.
    let hash: UInt32

    init(_ flight: Flight) {
        url = flight.url.description
        variant = flight.variant
        mode = flight.mode
        hash = flight.keyHash
    }

    init(
        _ request: HTTPRequest, redirect: RedirectMode, own: String?, alone: UInt64?, mode: CacheMode = .default
    ) {
        self.mode = mode
        url = request.url.description
        let isPlain =
            request.method == .get && redirect == .follow && request.fields.isEmpty && request.route.isUsual
            && request.jar == nil
        guard !isPlain || own != nil || alone != nil else {
            variant = ""
            hash = Self.hash(url, "")
            return
        }
        var variant = "\(request.method) \(redirect.rawValue) \(own ?? "")\(alone.map { " \($0)" } ?? "")\n"
        // Fields never contain an empty line, so the jar and route cannot be mistaken for fields.
        variant += request.jar.map { "\n\($0)\n" } ?? ""
        variant += request.route.canonical
        // Byte by byte, so that fields which differ only in invalid UTF-8 stay different.
        variant += String(String.UnicodeScalarView(request.fields.canonical.map { Unicode.Scalar($0) }))
        self.variant = variant
        hash = Self.hash(url, variant)
    }

    private static func hash(_ url: String, _ variant: String) -> UInt32 {
        let rest = variant.isEmpty ? 0 : variant.hashValue
        return NumberHash.of(UInt64(truncatingIfNeeded: url.hashValue), UInt64(truncatingIfNeeded: rest))
    }

    func hash(into hasher: inout Hasher) { hasher.combine(hash) }
}

/// One coalesced fetch. There may be a million, so state that few flights need is kept elsewhere.
struct Flight {
    /// State machine:
    ///
    /// ```
    /// asking → queued → running → backingOff → queued
    /// queued, backingOff → running           (adopts an earlier broker's attempt)
    /// queued, running → asking               (a stored response is looked up or read)
    /// asking, queued, running → following    (redirected)
    /// ```
    ///
    /// A flight is freed in any phase when its last interest leaves. A flight whose cancellation is deferred becomes
    /// `ended` when its response arrives. It is then freed or, if its body has the wrong form, `queued` again.
    enum Phase: Equatable {
        /// Waits for a lookup in the cache, or for a body to be read from it.
        case asking
        case queued
        case running(worker: Int32)
        /// Waits for its next attempt until the time in `pauses`.
        case backingOff
        /// Was redirected, and waits for the outcome of the child flight.
        case following(child: Int32)
        /// Has its outcome, which its deferred cancellation keeps for a request that may rejoin it.
        case ended
    }

    /// Properties that a plain GET lacks.
    private final class Particulars {
        let method: HTTPMethod
        let fields: HeaderFields
        let route: Route
        let jar: String?
        let variant: String
        let redirect: RedirectMode
        /// The client's own coalescing key, for redirects to inherit.
        let ownKey: String?
        let isAlone: Bool
        let body: BodyID?
        let mode: CacheMode

        init(
            _ request: HTTPRequest, _ redirect: RedirectMode, _ key: FlightKey, _ ownKey: String?, isAlone: Bool,
            body: BodyID?
        ) {
            mode = key.mode
            method = request.method
            fields = request.fields
            variant = key.variant
            route = request.route
            jar = request.jar
            self.redirect = redirect
            self.ownKey = ownKey
            self.isAlone = isAlone
            self.body = body
        }
    }

    let id: UInt64
    let url: FetchURL
    /// nil for a plain GET.
    private var particulars: Particulars?
    /// Hash of its key.
    let keyHash: UInt32
    /// Its origin, separately for each set of credentials.
    let scope: Int32
    /// Requests that wait for it directly.
    var interests = Chain()
    /// Flights that were redirected to it.
    var parents = Chain()
    /// Longest timeout that one of its interests allows.
    var timeoutMilliseconds: UInt32 = 0
    /// Attempts assigned to workers.
    var attempts: UInt32 = 0
    var phase = Phase.queued
    var retries: UInt8 = 0
    /// Failed attempts that may be retried.
    var failures: UInt8 = 0
    /// Failed attempts since the latest one that extended the body, that one included.
    var fruitless: UInt8 = 0
    /// Largest number of decoded bytes that a failed attempt received.
    var mostReceivedBytes = 0
    /// Number of workers that died while they ran it.
    var workerDeaths: UInt8 = 0
    /// Whether the flight ran isolated, or alone after an earlier death, at the latest death of its worker.
    var isAccused = false
    /// Whether its last worker died and it has not survived isolation since.
    var isSuspect = false
    /// Whether an attempt failed in a way that HTTP/2 may have caused. Later attempts then use HTTP/1.1.
    var avoidsHTTP2 = false
    /// Whether a waiting request may require a certain form of the body.
    var hasWishes = false
    /// Whether the cache stores its response, with the file of the body.
    var isStored = false
    /// Whether the cache revalidates a stale response with it.
    var isRevalidation = false

    var request: HTTPRequest {
        HTTPRequest(method: method, url: url, fields: fields, route: route, jar: jar)
    }

    var method: HTTPMethod { particulars?.method ?? .get }

    var route: Route { particulars?.route ?? Route() }

    var jar: String? { particulars?.jar }

    /// Request fields that a client sets.
    var fields: HeaderFields { particulars?.fields ?? HeaderFields() }

    var isRunning: Bool { if case .running = phase { true } else { false } }

    var redirect: RedirectMode { particulars?.redirect ?? .follow }

    var ownKey: String? { particulars?.ownKey }

    /// Whether it serves one request, and no other may join it.
    var isAlone: Bool { particulars?.isAlone ?? false }

    /// Body of the request.
    var body: BodyID? { particulars?.body }

    var mode: CacheMode { particulars?.mode ?? .default }

    /// Takes the mode of a key that is otherwise equal.
    mutating func takeMode(of key: FlightKey) {
        particulars = Particulars(request, redirect, key, ownKey, isAlone: isAlone, body: body)
    }

    var variant: String { particulars?.variant ?? "" }

    var key: FlightKey { FlightKey(self) }

    /// Whether a request waits for it, directly or through a redirect.
    var isAwaited: Bool { !interests.isEmpty || !parents.isEmpty }

    /// Whether its key equals `key`; computed without making the key.
    func has(_ key: FlightKey) -> Bool {
        url.description == key.url && variant == key.variant && mode == key.mode
    }
}

extension Flight {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    /// - Parameter key: the `FlightKey` of the other arguments.
    init(
        id: UInt64, request: HTTPRequest, redirect: RedirectMode, ownKey: String?, key: FlightKey, scope: Int32,
        isAlone: Bool, body: BodyID?
    ) {
        let isPlain = key.variant.isEmpty && key.mode == .default
        self.init(
            id: id, url: request.url,
            particulars: isPlain
                ? nil : Particulars(request, redirect, key, ownKey, isAlone: isAlone, body: body),
            keyHash: key.hash, scope: scope)
    }
}

/// Number of flights in each phase, counted incrementally.
struct FlightCounts: Equatable {
    private(set) var asking = 0
    private(set) var queued = 0
    private(set) var running = 0
    private(set) var backingOff = 0
    private(set) var following = 0
    private(set) var ended = 0

    subscript(phase: Flight.Phase) -> Int {
        get {
            switch phase {
            case .asking: asking
            case .queued: queued
            case .running: running
            case .backingOff: backingOff
            case .following: following
            case .ended: ended
            }
        }
        set {
            switch phase {
            case .asking: asking = newValue
            case .queued: queued = newValue
            case .running: running = newValue
            case .backingOff: backingOff = newValue
            case .following: following = newValue
            case .ended: ended = newValue
            }
        }
    }
}

/// Reference to a flight in timers and lists: its record number and its ID. The ID distinguishes it from later flights
/// with the same number.
public struct FlightName: Equatable, Sendable {
    var number: Int32
    var id: UInt64
}
