internal import ZeroMQ

/// Thread of libzmq for connections over tcp. Connections of one program share it.
///
/// Its end waits until messages of closed connections are sent, within the time of their `linger`.
package final class Network {
    /// Maximum number of sockets: three for each connection, its monitor included.
    private static let mostSockets: Int32 = 4_096

    private let context: Context

    /// - Throws: `ClientError` if libzmq is missing or its thread cannot start.
    package init() throws(ClientError) {
        do throws(ZeroMQError) { context = try Context.make(maximumSockets: Self.mostSockets) } catch {
            throw ClientError(.library, "cannot connect over a network: \(error)")
        }
    }

    /// Creates the socket of a client.
    func dealer(_ options: SocketOptions) throws(ZeroMQError) -> Socket { try context.socket(.dealer, options) }
}
