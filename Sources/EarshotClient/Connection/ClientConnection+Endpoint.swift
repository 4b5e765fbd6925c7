package import EarshotLoop
internal import EarshotWire

/// Connections to a broker of this machine by the name of its socket.
extension ClientConnection {
    /// Starts to connect to a broker. The broker may start later.
    ///
    /// - Parameters:
    ///   - endpoint: `ipc://` and the path of the broker's socket `bus`.
    ///   - window: maximum unacknowledged terminals, 1 to 4,096.
    ///   - lease: time for which the broker keeps the requests after a disconnection, from 0 to one hour in whole
    ///     milliseconds. It also applies when the process is killed.
    ///   - finishesNone: whether the consumer finishes every delivery; otherwise only deliveries whose body is a file.
    ///   - keepsFailures: whether durable failures stay on disk after they are finished, where ``retry(_:)`` repeats them.
    ///   - bodies: way of the bodies that the broker has in files.
    ///   - loop: event loop that runs the connection.
    ///   - onEvent: closure called for each event. It may call this object.
    /// - Throws: `SystemError` if the process cannot have a socket, `ClientError` for an endpoint without `ipc://`.
    package convenience init(
        endpoint: String, window: Int = 256, lease: Duration = .zero,
        finishesNone: Bool = false, keepsFailures: Bool = false, bodies: BodyAccess = .path, loop: EventLoop,
        onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        guard endpoint.hasPrefix("ipc://") else {
            throw ClientError(.invalidRequest, "the endpoint is invalid: use ipc:// and a path")
        }
        try self.init(
            endpoints: [BusEndpoint(socket: String(endpoint.dropFirst(6)))], window: window,
            lease: lease, finishesNone: finishesNone, keepsFailures: keepsFailures, bodies: bodies, loop: loop,
            onEvent: onEvent)
    }
}
