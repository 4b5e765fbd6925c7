/// Reason why a connection over a network ended or did not begin.
enum LinkEnding: Hashable, Sendable {
    /// The address does not resolve, or no server accepts the connection in time.
    case unreachable
    /// The server closed the connection in the handshake, as for a wrong server key or as a server of another protocol, or
    /// did not complete it in time.
    case handshakeFailed
    /// The server does not speak ZeroMQ with CURVE.
    case handshakeInvalid
    /// The server has not authorized the client's key.
    case refused
    /// An established connection broke.
    case lost
    /// The bus did not answer HELLO in time.
    case silent

    /// Sentence for users, with a next step.
    func sentence(_ endpoint: BusEndpoint) -> String {
        switch self {
        case .unreachable:
            "no bus answers at \(endpoint); check address and network, and that its `earshot serve` has --listen"
        case .handshakeFailed:
            "the handshake with \(endpoint) failed: it is no bus, or has another server key; compare with `earshot key show`"
        case .handshakeInvalid:
            "\(endpoint) is no bus with encryption; check the address and the port"
        case .refused:
            "the bus at \(endpoint) has not authorized the key of this client; ask its administrator for `earshot key`"
        case .lost: "the connection to the bus at \(endpoint) broke; wait for the bus or the network"
        case .silent: "the bus at \(endpoint) accepts the connection and does not answer; check its log"
        }
    }
}
