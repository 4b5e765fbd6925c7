internal import CLibZMQ
internal import Glibc

/// Key and name of a socket that accepts clients with CURVE.
public struct CurveServer: Equatable, Sendable {
    /// Secret key of this end.
    public var secretKey: String
    /// Name of the socket in the requests of ZAP; see ``Authentication``.
    public var domain: String

    public init(secretKey: String, domain: String) {
        self.secretKey = secretKey
        self.domain = domain
    }

    /// Length on the wire of a frame with `count` bytes, after encryption: rfc.zeromq.org/spec/26, MESSAGE.
    public static func wireBytes(ofFrame count: Int) -> Int {
        // Name of the command, nonce, authentication tag and flags.
        let encrypted = count + 8 + 8 + 16 + 1
        // Flags and length of a ZMTP frame.
        return encrypted + (encrypted <= 255 ? 2 : 9)
    }
}

extension Socket {
    /// Makes the socket a server of CURVE, which refuses all other mechanisms. Precedes ``bind(_:)``.
    public func serveCurve(_ server: CurveServer) throws(ZeroMQError) {
        try handle.set(ZMQ_CURVE_SERVER, 1 as Int32)
        try handle.set(ZMQ_CURVE_SECRETKEY, text: server.secretKey)
        let domain = Array(server.domain.utf8)
        guard unsafe zmq_setsockopt(handle.pointer, ZMQ_ZAP_DOMAIN, domain, domain.count) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }

    /// Accepts connections of this process only, over ipc. Precedes ``bind(_:)``.
    public func acceptOnlyThisProcess() throws(ZeroMQError) { try handle.set(ZMQ_IPC_FILTER_PID, getpid()) }
}
