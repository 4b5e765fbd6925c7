package import EarshotLoop
internal import EarshotWire

/// Connections to a broker of this machine by the name of its socket, and to buses by their addresses.
extension ClientConnection {
    /// Starts to connect to a broker. The broker may start later.
    ///
    /// - Parameters:
    ///   - endpoint: `ipc://` and the path of the broker's socket `bus`.
    ///   - window: maximum unacknowledged terminals, 1 to 4,096.
    ///   - lease: time for which the broker keeps the requests after a disconnection, from 0 to one hour in whole
    ///     milliseconds. It also applies when the process is killed.
    ///   - consumerFinishesDeliveries: whether the consumer finishes every delivery; otherwise only deliveries whose body is a file.
    ///   - keepsFailures: whether durable failures stay on disk after they are finished, where ``retry(_:)`` repeats
    ///     them.
    ///   - bodies: way of the bodies that the broker has in files.
    ///   - loop: event loop that runs the connection.
    ///   - onEvent: closure called for each event. It may call this object.
    /// - Throws: `SystemError` if the process cannot have a socket, `ClientError` for an endpoint without `ipc://`.
    package convenience init(
        endpoint: String, window: Int = 256, lease: Duration = .zero, consumerFinishesDeliveries: Bool = false,
        keepsFailures: Bool = false, bodies: BodyAccess = .path, loop: EventLoop,
        onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        guard endpoint.hasPrefix("ipc://") else {
            throw ClientError(.invalidRequest, "the endpoint is invalid: use ipc:// and a path")
        }
        try self.init(
            endpoints: [BusEndpoint(socket: String(endpoint.dropFirst(6)))], window: window, lease: lease,
            consumerFinishesDeliveries: consumerFinishesDeliveries, keepsFailures: keepsFailures, bodies: bodies,
            loop: loop, onEvent: onEvent)
    }

    /// Starts to connect to the first of several buses that can be reached.
    ///
    /// If the connection is lost, the client returns to its bus for 3 s and resumes its session. Then it tries the
    /// others, where it makes its open requests again. It leaves a bus that drains after 1 s. Durable requests stay on
    /// the bus that has them: they end with the code `connection-lost`.
    ///
    /// - Parameters:
    ///   - endpoints: buses in the order of preference; at least one.
    ///   - window: maximum unacknowledged terminals, 1 to 4,096.
    ///   - lease: time for which the broker keeps the requests after a disconnection, from 0 to one hour in whole
    ///     milliseconds; nil for a minute over a network, and none on this machine.
    ///   - consumerFinishesDeliveries: whether the consumer finishes every delivery; otherwise only deliveries whose body is a file.
    ///   - keepsFailures: whether durable failures stay on disk after they are finished, where ``retry(_:)`` repeats
    ///     them.
    ///   - bodies: way of the bodies that the broker has in files. With a bus on a network they are always pulled.
    ///   - loop: event loop that runs the connection.
    ///   - onEvent: closure called for each event. It may call this object.
    /// - Throws: `SystemError` if the process cannot have a socket, `ClientError` if libzmq is missing.
    package convenience init(
        endpoints: [BusEndpoint], window: Int = 256, lease: Duration? = nil, consumerFinishesDeliveries: Bool = false,
        keepsFailures: Bool = false, bodies: BodyAccess = .path, loop: EventLoop,
        onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        try self.init(
            endpoints, sharing: nil, window: window, lease: lease,
            consumerFinishesDeliveries: consumerFinishesDeliveries,
            keepsFailures: keepsFailures, bodies: bodies, loop: loop, onEvent: onEvent)
    }
}

/// Limits of the protocol that a request of the consumer must keep.
extension ClientConnection {
    /// Head bytes reserved for fields that a repetition adds: `request`, or another priority.
    private static let reservedHeadBytes = 64

    /// Checks a request against the limits of the protocol.
    ///
    /// - Throws: `ClientError` if the request exceeds a limit.
    static func checkLimits(of fetch: Fetch) throws(ClientError) {
        guard (1...WireLimits.urlBytes).contains(fetch.url.utf8.count),
            fetch.url.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f })
        else {
            let limit = WireLimits.urlBytes
            throw ClientError(
                .invalidRequest,
                "the URL is invalid: use 1 to \(limit) bytes of UTF-8 without spaces and control characters")
        }
        let maximumBytes = WireLimits.headBytes - reservedHeadBytes
        guard hasShortHead(fetch) || ClientMessage.fetch(fetch).encoded().count <= maximumBytes else {
            throw ClientError(.invalidRequest, "the header fields are too long: use at most \(maximumBytes) bytes")
        }
        guard fetch.body?.count ?? 0 <= WireLimits.requestBodyBytes else {
            throw ClientError(
                .invalidRequest, "the request body is too long: use at most \(WireLimits.requestBodyBytes) bytes")
        }
    }

    /// Returns whether the head is far below its limit, without encoding it.
    private static func hasShortHead(_ fetch: Fetch) -> Bool {
        fetch.url.utf8.count + fetch.httpFields.count + fetch.options.totalTextBytes <= WireLimits.headBytes / 2
    }
}
