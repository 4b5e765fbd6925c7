internal import EarshotHTTP
internal import EarshotWire

/// What requests must have in common to share a flight: method, URL, fields sent, redirect mode, the client's own key,
/// the way to the server, the jar of cookies, and the cache mode, as far as another is not as strict
/// (`CacheMode.stricter`); one that is to be alone has a number in it that no other has.
/// Credentials travel in the URL and the fields, so each trust scope has flights of its own.
struct FlightKey: Hashable {
    let url: String
    /// All else; empty for a plain GET without fields.
    let variant: String
    var mode: CacheMode
    /// Of `url` and `variant`: flights are looked for in several modes.
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
        // Fields never hold an empty line, so these are not taken for some.
        variant += request.jar.map { "\n\($0)\n" } ?? ""
        variant += request.route.canonical
        // Byte by byte: fields that are not UTF-8 stay apart.
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

/// One coalesced fetch. There may be a million of them: what only a few need is elsewhere.
struct Flight {
    /// `asking -> queued -> running -> (gone | backingOff | following | asking)`, `backingOff -> queued`; any of them
    /// ends when its last interest goes. One whose cancellation is deferred does not go when it ends, but is `ended`,
    /// then gone or, for a body in the wrong form, `queued`.
    enum Phase: Equatable {
        /// Waits for what the cache says, or for a body that is kept there.
        case asking
        case queued
        case running(worker: Int32)
        /// Waits before the next attempt, as `pauses` says for how long.
        case backingOff
        /// Was redirected, and waits for what becomes of that flight.
        case following(child: Int32)
        /// Has its outcome, which its deferred cancellation keeps for a request that may still rejoin it.
        case ended
    }

    /// What a plain GET has not.
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
    /// Nil for a plain GET.
    private var particulars: Particulars?
    /// That of its key.
    let keyHash: UInt32
    /// Its origin, as its credentials see it.
    let scope: Int32
    /// Requests that wait for it.
    var interests = Chain()
    /// Flights that were redirected to it.
    var parents = Chain()
    /// The laxest of what its interests allow.
    var timeoutMilliseconds: UInt32 = 0
    /// Attempts given to workers.
    var attempts: UInt32 = 0
    var phase = Phase.queued
    var retries: UInt8 = 0
    /// Attempts that failed and may be retried.
    var failures: UInt8 = 0
    /// Those of them since one brought more of the body than there was, that one included.
    var fruitless: UInt8 = 0
    /// The most decoded bytes of body that one of them had.
    var mostReceivedBytes = 0
    /// Workers that died while they ran it.
    var workerDeaths: UInt8 = 0
    /// Whether it ran isolated, or by itself after an earlier death, when the last of them died.
    var isAccused = false
    /// Whether its last worker died and it has not yet survived isolation.
    var isSuspect = false
    /// Whether an attempt failed in a way that HTTP/2 may have caused: the next ones use HTTP/1.1.
    var avoidsHTTP2 = false
    /// Whether somebody who waits may want the body in a certain form.
    var hasWishes = false
    /// Whether the cache keeps its answer, with the file of its body.
    var isStored = false
    /// Whether the cache wants it, to bring an answer up to date that was used stale.
    var isRevalidation = false

    /// - Parameter key: as `FlightKey` makes it of the others.
    init(
        id: UInt64, request: HTTPRequest, redirect: RedirectMode, ownKey: String?, key: FlightKey, scope: Int32,
        isAlone: Bool, body: BodyID?
    ) {
        self.id = id
        url = request.url
        keyHash = key.hash
        let isPlain = key.variant.isEmpty && key.mode == .default
        particulars = isPlain ? nil : Particulars(request, redirect, key, ownKey, isAlone: isAlone, body: body)
        self.scope = scope
    }

    var request: HTTPRequest {
        HTTPRequest(method: method, url: url, fields: fields, route: route, jar: jar)
    }

    var method: HTTPMethod { particulars?.method ?? .get }

    var route: Route { particulars?.route ?? Route() }

    var jar: String? { particulars?.jar }

    /// What a client wants sent.
    var fields: HeaderFields { particulars?.fields ?? HeaderFields() }

    var isRunning: Bool { if case .running = phase { true } else { false } }

    var redirect: RedirectMode { particulars?.redirect ?? .follow }

    var ownKey: String? { particulars?.ownKey }

    /// Whether it is for one request, and nobody joins it.
    var isAlone: Bool { particulars?.isAlone ?? false }

    /// What is sent with the request.
    var body: BodyID? { particulars?.body }

    var mode: CacheMode { particulars?.mode ?? .default }

    /// Takes the mode of a key that differs in nothing else.
    mutating func takeMode(of key: FlightKey) {
        particulars = Particulars(request, redirect, key, ownKey, isAlone: isAlone, body: body)
    }

    var variant: String { particulars?.variant ?? "" }

    var key: FlightKey { FlightKey(self) }

    /// Whether anybody waits for it.
    var isAwaited: Bool { !interests.isEmpty || !parents.isEmpty }

    /// Without making its key.
    func has(_ key: FlightKey) -> Bool {
        url.description == key.url && variant == key.variant && mode == key.mode
    }
}

/// How many flights are in each phase, so that nobody has to count a million.
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

/// A flight as timers and lists name it: its record's number, and its ID, which tells it from a later one there.
public struct FlightName: Equatable, Sendable {
    var number: Int32
    var id: UInt64
}
