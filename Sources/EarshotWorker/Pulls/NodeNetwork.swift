public import EarshotLoop
public import EarshotWire

/// Connections of the puller to the other nodes of its cluster.
public protocol NodeNetwork: AnyObject {
    /// Requests a body. Calls the receiver until the request has ended or is cancelled.
    func requestBody(_ request: PullRequest, for receiver: any PullReceiver)
    /// Cancels a request, also at the other node. Its receiver is not called again.
    func cancel(_ request: PullRequest)
    /// Closes all connections. No receiver is called again.
    func closeConnections()
}

/// Request for a body of another node.
public struct PullRequest: Hashable, Sendable {
    /// Attempt of the job, unique among the requests of a puller.
    public let attempt: AttemptID
    /// URL of the job, which the other node gets unchanged.
    public let url: String
    public let node: NodeAddress
    /// HTTP method.
    public let method: String
    public let priority: PriorityClass

    init(_ job: Job, at node: NodeAddress) {
        attempt = job.attempt
        url = job.url
        self.node = node
        method = job.method
        priority = job.priority
    }
}

/// Receiver of one body. Called on the loop, and never from inside a call of ``NodeNetwork``.
public protocol PullReceiver: AnyObject {
    /// Returns a file for a body that does not fit into a message.
    ///
    /// - Returns: A descriptor for reading and writing, which the caller closes; nil if the body is not wanted. The
    ///   receiver then cancels the request.
    func makeBodyFile(for head: PulledHead) -> Int32?
    /// Handles that the first `bytes` bytes of the body are in the file.
    func bodyGrew(to bytes: Int)
    /// Handles the end of the request.
    func requestEnded(_ ending: PullEnding)
}

/// Response of another node without its body.
public struct PulledHead: Sendable {
    /// HTTP status, 200 to 999.
    public let status: Int
    /// Length of the body in bytes.
    public let bodyBytes: Int
    /// SHA-256 of the body, 64 hexadecimal digits; nil for a response without a body.
    public let bodySHA256: String?
    /// Header fields of the response, separated by LF.
    public let httpFields: [UInt8]

    public init(status: Int, bodyBytes: Int, bodySHA256: String?, httpFields: [UInt8]) {
        self.status = status
        self.bodyBytes = bodyBytes
        self.bodySHA256 = bodySHA256
        self.httpFields = httpFields
    }
}

/// End of a request for a body. Texts are reasons, for the log.
public enum PullEnding: Sendable {
    /// The body came in a message.
    case bodyInMessage(PulledHead, body: [UInt8])
    /// The body is in the receiver's file.
    case bodyInFile(PulledHead)
    /// No connection to the node could be made in time.
    case nodeUnreachable(String)
    /// The connection broke and could not be resumed in time, or the node has restarted.
    case connectionLost(String)
    /// The other node does not have the body any more, or does not permit the request.
    case requestRefused(String)
    /// The file could not be written, for the reason of an `errno` value.
    case fileUnwritable(Int32)
}

/// Address of the node gateway of another node, from which the puller reads bodies.
public struct NodeAddress: Hashable, Sendable, CustomStringConvertible {
    /// Scheme of the URLs that name bodies of nodes: `earshot-node://ADDRESS:PORT/KEY/TOKEN`.
    public static let scheme = "earshot-node"

    public let address: TCPSocket.Address
    /// Port, 1 or more.
    public let port: UInt16

    /// Parses the address in a URL of ``scheme``. Nil for a host name: the puller makes no DNS queries.
    public init?(url: String) {
        let prefix = Self.scheme + "://"
        guard url.hasPrefix(prefix) else { return nil }
        let authority = url.dropFirst(prefix.count).prefix { $0 != "/" }
        guard let colon = authority.lastIndex(of: ":") else { return nil }
        guard let port: UInt16 = Decimal.parse(authority[authority.index(after: colon)...]), port > 0,
            let address = TCPSocket.Address(urlHost: authority[..<colon])
        else { return nil }
        self.address = address
        self.port = port
    }

    /// `tcp://ADDRESS:PORT`, the address of IPv6 in brackets.
    public var description: String {
        switch address {
        case .ipv4: "tcp://\(address):\(port)"
        case .ipv6: "tcp://[\(address)]:\(port)"
        }
    }
}
