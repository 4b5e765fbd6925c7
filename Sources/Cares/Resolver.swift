internal import CLibCares
internal import Glibc

/// Non-blocking resolver of host names: first the hosts file, then DNS (c-ares), driven by descriptors and a timeout
/// that the owner watches.
///
/// The owner calls `descriptorReady` and `timerFired` on events. After each call to any method it takes
/// `takeInterests()` and `takeFinishedLookups()`, and reads `timeoutMilliseconds`. A lookup cannot be cancelled: the
/// owner ignores an unwanted result.
@safe public final class Resolver {
    /// Result of `ares_library_init`. The initializer of a static runs once, however many threads call.
    private static let libraryStatus: Int32 = ares_library_init(ARES_LIB_INIT_ALL)

    private let resolverEvents: ResolverEvents
    /// Owned channel; destroyed by `deinit`.
    private let channel: ares_channel

    private init(channel: ares_channel, events: ResolverEvents) {
        unsafe self.channel = unsafe channel
        self.resolverEvents = events
    }

    /// Creates a resolver.
    ///
    /// - Throws: `CaresError`; `badServers` for a server that is not an address.
    public static func make(options: ResolverOptions = ResolverOptions()) throws(CaresError) -> Resolver {
        let success = ARES_SUCCESS
        guard libraryStatus == success else { throw CaresError(.notInitialized, status: libraryStatus) }
        let events = ResolverEvents()
        let (channel, status) = unsafe openChannel(options, events: events)
        guard status == success, let channel = unsafe channel else {
            throw CaresError(.notInitialized, status: status)
        }
        let resolver = unsafe Resolver(channel: channel, events: events)
        if let servers = options.servers {
            let accepted = unsafe ares_set_servers_ports_csv(channel, servers.joined(separator: ","))
            guard accepted == success else { throw CaresError(.badServers, status: accepted) }
        }
        return resolver
    }

    private static func openChannel(_ options: ResolverOptions, events: ResolverEvents) -> (ares_channel?, Int32) {
        var native = unsafe ares_options()
        unsafe native.timeout = Int32(clamping: Int(options.attemptTimeout / .milliseconds(1)))
        unsafe native.tries = Int32(clamping: options.triesPerServer)
        unsafe native.sock_state_cb = unsafe interestChanged
        unsafe native.sock_state_cb_data = unsafe Unmanaged.passUnretained(events).toOpaque()
        let mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS
        var channel: ares_channel?
        // Order of lookups, copied by c-ares: f is the hosts file, b is DNS.
        var lookups = "fb".utf8CString.map { $0 }
        let status = unsafe lookups.withUnsafeMutableBufferPointer { text in
            unsafe native.lookups = text.baseAddress
            return unsafe ares_init_options(&channel, &native, mask)
        }
        return unsafe (channel, status)
    }

    deinit {
        // Calls back for each pending lookup and each descriptor while the events still exist.
        unsafe ares_destroy(channel)
    }

    // MARK: Lookups and events

    /// Starts a lookup of all addresses of a name. It may complete at once: see `takeFinishedLookups()`.
    public func resolve(_ name: String) {
        let lookup = LookupContext(name: name, events: resolverEvents)
        guard !name.utf8.contains(0) else {
            return lookup.recordResult(status: ARES_EBADNAME, addresses: [])
        }
        unsafe lookup.start(on: channel)
    }

    /// Handles a descriptor that is readable or writable. A failed one counts as both.
    public func descriptorReady(_ descriptor: Int32, reads: Bool, writes: Bool) {
        unsafe ares_process_fd(channel, reads ? descriptor : ARES_SOCKET_BAD, writes ? descriptor : ARES_SOCKET_BAD)
    }

    /// Handles the timeout that `timeoutMilliseconds` returned. An early call has no effect.
    public func timerFired() {
        unsafe ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD)
    }

    // MARK: Results for the owner

    /// Milliseconds until `timerFired()` is due, at least 1; nil without pending lookups.
    public var timeoutMilliseconds: Int? {
        var time = timeval()
        guard unsafe ares_timeout(channel, nil, &time) != nil else { return nil }
        // c-ares truncates to milliseconds. Without the additional one, the owner would poll in a busy loop.
        return Int(time.tv_sec) * 1000 + Int(time.tv_usec) / 1000 + 1
    }

    /// Returns changed interests, at most one per descriptor.
    public func takeInterests() -> [ResolverInterest] {
        guard !resolverEvents.interests.isEmpty else { return [] }
        defer { resolverEvents.interests.removeAll(keepingCapacity: true) }
        return Array(resolverEvents.interests.values)
    }

    /// Returns completed lookups in the order of completion.
    public func takeFinishedLookups() -> [FinishedLookup] {
        guard !resolverEvents.finishedLookups.isEmpty else { return [] }
        defer { resolverEvents.finishedLookups.removeAll(keepingCapacity: true) }
        return resolverEvents.finishedLookups
    }
}

/// Options of a resolver.
public struct ResolverOptions: Sendable {
    /// Numeric addresses of servers, each with an optional `:port`, in which case IPv6 is in brackets; nil for the
    /// system's servers.
    public var servers: [String]?
    /// Timeout of a server's first response; doubled in each further round over the servers.
    public var attemptTimeout = Duration.seconds(2)
    /// Number of attempts per server.
    public var triesPerServer = 2

    public init(servers: [String]? = nil) {
        self.servers = servers
    }
}

/// Change of the events for which the owner of a resolver watches a descriptor.
///
/// The descriptor number may name a new socket: c-ares may close a socket and open another one within one call. The
/// owner must therefore add a descriptor that it cannot modify, and modify one that it cannot add. It must also
/// tolerate that a forgotten one is already closed.
public struct ResolverInterest: Hashable, Sendable {
    /// Open socket.
    public let descriptor: Int32
    public let wantsReadability: Bool
    public let wantsWritability: Bool

    /// Whether the owner stops watching the descriptor.
    public var isUnwatched: Bool { !wantsReadability && !wantsWritability }
}

/// Completed lookup, as returned by `Resolver.takeFinishedLookups()`.
public struct FinishedLookup: Sendable {
    /// Name passed to the resolver.
    public let name: String
    /// Addresses, best first (RFC 6724) and at least one, or the reason for their absence.
    public let result: Result<[ResolvedAddress], LookupFailure>
}

/// Reason why a name has no addresses.
public enum LookupFailure: Error, Hashable, Sendable {
    /// The name does not exist, has no address, or is invalid.
    case notFound
    /// No server responded in time.
    case timeout
    /// No server was reachable, or all of them refused or failed.
    case serverFailure
    /// Another error; the number is c-ares' status.
    case other(status: Int)

    init(status: Int32) {
        switch status {
        case ARES_ENOTFOUND, ARES_ENODATA, ARES_EBADNAME, ARES_ENONAME:
            self = .notFound
        case ARES_ETIMEOUT:
            self = .timeout
        case ARES_ESERVFAIL, ARES_EREFUSED, ARES_ECONNREFUSED, ARES_EFORMERR, ARES_ENOTIMP, ARES_EBADRESP:
            self = .serverFailure
        default:
            self = .other(status: Int(status))
        }
    }
}

/// Failure to create a resolver.
public struct CaresError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of failure; grows with the library.
    public struct Code: Hashable, Sendable {
        let name: String

        /// c-ares or a channel could not be initialized.
        public static let notInitialized = Code(name: "not initialised")
        /// A server in the options is not a numeric address.
        public static let badServers = Code(name: "bad servers")
    }

    public let code: Code
    /// Status code of c-ares.
    public let status: Int

    public var description: String { "c-ares: \(code.name) (\(status))" }

    init(_ code: Code, status: Int32) {
        self.code = code
        self.status = Int(status)
    }
}

/// Address of a host name, as `Resolver` returns it to the worker's `Names`.
public struct ResolvedAddress: Hashable, Sendable {
    /// Numeric address without brackets.
    public let text: String
    public let isIPv6: Bool
    /// Time to live; zero for an address from the hosts file.
    public let timeToLive: Duration

    /// - Returns: nil for an address of a family other than IPv4 and IPv6.
    init?(_ node: ares_addrinfo_node) {
        guard let text = unsafe Self.numericAddress(of: node) else { return nil }
        self.text = text
        isIPv6 = unsafe node.ai_family == AF_INET6
        timeToLive = unsafe .seconds(max(0, Int(node.ai_ttl)))
    }

    private static func numericAddress(of node: ares_addrinfo_node) -> String? {
        guard let address = unsafe UnsafeRawPointer(node.ai_addr) else { return nil }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let capacity = socklen_t(text.count)
        let isWritten: Bool
        switch unsafe node.ai_family {
        case AF_INET:
            var bytes = unsafe address.loadUnaligned(as: sockaddr_in.self).sin_addr
            isWritten = unsafe inet_ntop(AF_INET, &bytes, &text, capacity) != nil
        case AF_INET6:
            var bytes = unsafe address.loadUnaligned(as: sockaddr_in6.self).sin6_addr
            isWritten = unsafe inet_ntop(AF_INET6, &bytes, &text, capacity) != nil
        default:
            isWritten = false
        }
        guard isWritten else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

/// Events recorded by c-ares' callbacks until the owner takes them, because a callback must not act.
final class ResolverEvents {
    /// Latest interest in each descriptor since the owner last took them.
    var interests: [Int32: ResolverInterest] = [:]
    var finishedLookups: [FinishedLookup] = []
}

/// Context of one lookup's callback. Retained when the lookup starts, released by its single callback.
final class LookupContext {
    let name: String
    let events: ResolverEvents

    init(name: String, events: ResolverEvents) {
        self.name = name
        self.events = events
    }

    /// Starts the lookup. Its result, which may arrive before this returns, is recorded.
    func start(on channel: ares_channel) {
        var hints = ares_addrinfo_hints()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        unsafe ares_getaddrinfo(channel, name, nil, &hints, lookupFinished, Unmanaged.passRetained(self).toOpaque())
    }

    func recordResult(status: Int32, addresses: [ResolvedAddress]) {
        let result: Result<[ResolvedAddress], LookupFailure> =
            if status != ARES_SUCCESS {
                .failure(LookupFailure(status: status))
            } else if addresses.isEmpty {
                .failure(.notFound)
            } else {
                .success(addresses)
            }
        events.finishedLookups.append(FinishedLookup(name: name, result: result))
    }
}

func interestChanged(context: UnsafeMutableRawPointer?, descriptor: ares_socket_t, reads: Int32, writes: Int32) {
    guard let context = unsafe context else { return }
    let events = unsafe Unmanaged<ResolverEvents>.fromOpaque(context).takeUnretainedValue()
    events.interests[descriptor] = ResolverInterest(
        descriptor: descriptor, wantsReadability: reads != 0, wantsWritability: writes != 0)
}

private func lookupFinished(
    context: UnsafeMutableRawPointer?, status: Int32, timeouts: Int32, addressInfo: UnsafeMutablePointer<ares_addrinfo>?
) {
    var addresses: [ResolvedAddress] = []
    if let found = unsafe addressInfo {
        var next = unsafe found.pointee.nodes
        while let node = unsafe next {
            if let address = unsafe ResolvedAddress(node.pointee) { addresses.append(address) }
            unsafe next = node.pointee.ai_next
        }
        unsafe ares_freeaddrinfo(found)
    }
    guard let context = unsafe context else { return }
    let lookup = unsafe Unmanaged<LookupContext>.fromOpaque(context).takeRetainedValue()
    lookup.recordResult(status: status, addresses: addresses)
}
