/// Type of a socket, and the types it is compatible with: rfc.zeromq.org/spec/28. A router here refuses other routers,
/// because the broker only talks to clients and workers.
public enum SocketType: String, Sendable {
    case dealer = "DEALER"
    case router = "ROUTER"

    func takes(_ other: SocketType) -> Bool {
        switch self {
        case .dealer: true
        case .router: other == .dealer
        }
    }
}
