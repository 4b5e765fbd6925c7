/// Type of a socket, and the types it is compatible with: rfc.zeromq.org/spec/28.
public enum SocketType: String, Sendable {
    case dealer = "DEALER"
    case router = "ROUTER"
    case request = "REQ"
    case reply = "REP"

    func takes(_ other: SocketType) -> Bool {
        switch self {
        case .dealer: [.router, .dealer, .reply].contains(other)
        case .router: [.dealer, .request, .router].contains(other)
        case .request: [.router, .reply].contains(other)
        case .reply: [.dealer, .request].contains(other)
        }
    }
}
