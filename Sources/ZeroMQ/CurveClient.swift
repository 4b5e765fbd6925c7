internal import CLibZMQ

/// Keys and times of a socket that connects over tcp with CURVE. A key is 32 bytes as 40 characters of Z85.
public struct CurveClient: Equatable, Sendable {
    /// Public key that the server must prove to own.
    public var serverKey: String
    /// Public key of this end.
    public var publicKey: String
    /// Secret key of this end.
    public var secretKey: String
    /// Timeout of the tcp connection in milliseconds.
    public var connectMilliseconds: Int32 = 5_000
    /// Whether host names are resolved to addresses of IPv6. libzmq tries one address only.
    public var usesIPv6 = false

    public init(serverKey: String, publicKey: String, secretKey: String) {
        self.serverKey = serverKey
        self.publicKey = publicKey
        self.secretKey = secretKey
    }

    /// Number of characters in the text of a key.
    public static let keyCharacters = 40

    /// Returns whether `text` has the form of a key: 40 characters of Z85, groups of five below 2^32.
    public static func isKey(_ text: String) -> Bool {
        let digits = text.utf8.map { alphabet.firstIndex(of: $0) }
        guard digits.count == keyCharacters, !digits.contains(nil) else { return false }
        return stride(from: 0, to: keyCharacters, by: 5).allSatisfy { start in
            digits[start..<start + 5].reduce(UInt64(0)) { $0 * 85 + UInt64($1 ?? 0) } <= UInt64(UInt32.max)
        }
    }

    /// The 85 characters of Z85 (rfc.zeromq.org/spec/32) in the order of their values.
    private static let alphabet = Array(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#".utf8)
}

extension Socket {
    /// Makes the socket a client of CURVE. Precedes ``connect(_:)``.
    public func useCurve(_ client: CurveClient) throws(ZeroMQError) {
        try handle.set(ZMQ_CURVE_SERVERKEY, text: client.serverKey)
        try handle.set(ZMQ_CURVE_PUBLICKEY, text: client.publicKey)
        try handle.set(ZMQ_CURVE_SECRETKEY, text: client.secretKey)
        try handle.set(ZMQ_CONNECT_TIMEOUT, client.connectMilliseconds)
        try handle.set(ZMQ_IPV6, client.usesIPv6 ? 1 : 0 as Int32)
    }
}

extension SocketHandle {
    /// Sets an option to a text, with its terminating zero.
    func set(_ name: Int32, text: String) throws(ZeroMQError) {
        let bytes = Array(text.utf8CString)
        guard unsafe zmq_setsockopt(pointer, name, bytes, bytes.count) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }
}
