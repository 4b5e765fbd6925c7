internal import ZeroMQ

/// Thread of libzmq for connections over tcp. Connections of one program share it.
///
/// Its end waits until messages of closed connections are sent, within the time of their `linger`.
package final class Network {
    /// Maximum number of sockets: three for each connection, its monitor included.
    private static let maximumSockets: Int32 = 4_096

    /// Intervals of heartbeats.
    package enum HeartbeatIntervals {
        /// The client notices a vanished peer after 20 s. A network that pauses for 5 s keeps its connections.
        case usual
        /// The client notices a vanished peer after 4 s: for peers that have substitutes.
        case short
    }

    private let context: Context
    let heartbeat: SocketOptions.Heartbeat

    /// - Throws: `ClientError` if libzmq is missing or its thread cannot start.
    package init(_ intervals: HeartbeatIntervals = .usual) throws(ClientError) {
        heartbeat =
            switch intervals {
            case .usual: SocketOptions.Heartbeat(intervalMilliseconds: 5_000, timeoutMilliseconds: 15_000)
            case .short: SocketOptions.Heartbeat(intervalMilliseconds: 1_000, timeoutMilliseconds: 3_000)
            }
        do throws(ZeroMQError) {
            context = try Context.make(maximumSockets: Self.maximumSockets)
        } catch {
            throw ClientError(.library, "cannot connect over a network: \(error)")
        }
    }

    /// Creates the socket of a client.
    func makeDealerSocket(_ options: SocketOptions) throws(ZeroMQError) -> Socket {
        try context.socket(.dealer, options)
    }
}
