internal import CLibZMQ

/// Handler of ZAP for all servers of a context: rfc.zeromq.org/spec/27. It decides which keys are accepted.
///
/// Without one, a server with CURVE accepts every client key.
public struct Authentication: ~Copyable {
    /// Request of a server whose client has proved that it owns a key.
    public struct Request: Equatable, Sendable {
        /// Name of the server's socket: ``CurveServer/domain``.
        public let domain: String
        /// Public key of the client; nil for a mechanism other than CURVE.
        public let publicKey: String?
        fileprivate let replyEnvelope: [[UInt8]]
    }

    /// Decision about a client.
    public enum Decision: String, Sendable {
        case accepted = "200"
        /// The client may come back later. Its connection ends without a reason.
        case busy = "300"
        /// The client learns that its key is refused, and its connection ends.
        case refused = "400"
    }

    /// Frames of a request: routing ID, delimiter, version, number, domain, address, identity, mechanism, key.
    private static let requestFrameCount = 9

    private let socket: Socket
    private var receivedParts: Multipart

    private init(socket: consuming Socket) {
        self.socket = socket
        receivedParts = Multipart(capacity: Self.requestFrameCount)
    }

    /// Descriptor for epoll, under the rules of ``Socket/descriptor``.
    public var descriptor: Int32 { socket.descriptor }

    /// Starts to answer for the servers of `context`. It precedes their ``Socket/bind(_:)``.
    public static func make(in context: borrowing Context) throws(ZeroMQError) -> Authentication {
        var options = SocketOptions()
        options.receiveHighWaterMark = 0
        options.sendHighWaterMark = 0
        let socket = try context.socket(.router, options)
        try socket.bind("inproc://zeromq.zap.01")
        return Authentication(socket: socket)
    }

    /// Returns the next request; nil if none is pending.
    public mutating func next() throws(ZeroMQError) -> Request? {
        while try socket.receive(into: &receivedParts) {
            defer { receivedParts.removeAll() }
            // Only the servers of this process can send requests.
            guard receivedParts.count == Self.requestFrameCount, receivedParts.surplusFrames == 0 else { continue }
            let isCurve = String(decoding: receivedParts.bytes(7), as: UTF8.self) == "CURVE"
            return Request(
                domain: String(decoding: receivedParts.bytes(4), as: UTF8.self),
                publicKey: isCurve ? CurveKeyPair.keyText(of: receivedParts.bytes(8)) : nil,
                replyEnvelope: (0..<4).map { receivedParts.bytes($0) })
        }
        return nil
    }

    /// Accepts or refuses the client of a request.
    public func answer(_ request: Request, _ decision: Decision) throws(ZeroMQError) {
        for frame in request.replyEnvelope {
            // The server has ended meanwhile.
            guard try socket.send(frame, more: true) == .sent else { return }
        }
        for text in [decision.rawValue, "\(decision)", ""] {
            _ = try socket.send(Array(text.utf8), more: true)
        }
        _ = try socket.send([])
    }

    /// Returns whether requests are pending; see ``Socket/readiness()``.
    public func isReadable() throws(ZeroMQError) -> Bool { try socket.readiness().contains(.readable) }
}
