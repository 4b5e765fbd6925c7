internal import CLibZMQ
internal import Glibc

/// Key pair of CURVE: 32 bytes each, as 40 characters of Z85.
public struct CurveKeyPair: Equatable, Sendable {
    /// Key that the other end may know.
    public let publicKey: String
    /// Key that only its owner knows.
    public let secretKey: String

    /// Creates a new pair from the random numbers of the system. Its public key does not begin with a hyphen, so that no
    /// command takes it for an option.
    ///
    /// - Throws: `ZeroMQError` if libzmq is missing, or was built without CURVE.
    public static func make() throws(ZeroMQError) -> CurveKeyPair {
        try ZeroMQLibrary.load()
        var publicText = [CChar](repeating: 0, count: keyTextBytes)
        var secretText = [CChar](repeating: 0, count: keyTextBytes)
        repeat {
            guard unsafe zmq_curve_keypair(&publicText, &secretText) == 0 else {
                throw ZeroMQError("zmq_curve_keypair")
            }
        } while publicText[0] == CChar(UInt8(ascii: "-"))
        return CurveKeyPair(publicKey: string(fromCString: publicText), secretKey: string(fromCString: secretText))
    }

    /// Derives the pair of a secret key.
    ///
    /// - Throws: `ZeroMQError` if libzmq is missing, or `secretKey` does not have the form of a key.
    public static func make(fromSecretKey secretKey: String) throws(ZeroMQError) -> CurveKeyPair {
        try ZeroMQLibrary.load()
        var publicText = [CChar](repeating: 0, count: keyTextBytes)
        guard unsafe zmq_curve_public(&publicText, secretKey) == 0 else { throw ZeroMQError("zmq_curve_public") }
        return CurveKeyPair(publicKey: string(fromCString: publicText), secretKey: secretKey)
    }

    /// Returns the text of a key of 32 bytes; nil for any other number of bytes.
    public static func keyText(of key: [UInt8]) -> String? {
        guard key.count == keyBytes, (try? ZeroMQLibrary.load()) != nil else { return nil }
        var text = [CChar](repeating: 0, count: keyTextBytes)
        guard unsafe zmq_z85_encode(&text, key, key.count) != nil else { return nil }
        return string(fromCString: text)
    }

    private static let keyBytes = 32
    /// Length of the text with its terminating zero.
    private static let keyTextBytes = CurveClient.keyCharacterCount + 1

    private static func string(fromCString text: [CChar]) -> String {
        String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// Keys and times of a socket that connects over tcp with CURVE. A key is 32 bytes as 40 characters of Z85.
public struct CurveClient: Equatable, Sendable {
    /// Public key that the server must prove to own.
    public var serverKey: String
    /// Public key of this end.
    public var publicKey: String
    /// Secret key of this end.
    public var secretKey: String
    /// Timeout of the tcp connection in milliseconds.
    public var connectTimeoutMilliseconds: Int32 = 5_000
    /// Whether host names are resolved to addresses of IPv6. libzmq tries one address only.
    public var usesIPv6 = false

    public init(serverKey: String, publicKey: String, secretKey: String) {
        self.serverKey = serverKey
        self.publicKey = publicKey
        self.secretKey = secretKey
    }

    /// Number of characters in the text of a key.
    public static let keyCharacterCount = 40

    /// Returns whether `text` has the form of a key: 40 characters of Z85, groups of five below 2^32.
    public static func isKey(_ text: String) -> Bool {
        let digits = text.utf8.map { z85Alphabet.firstIndex(of: $0) }
        guard digits.count == keyCharacterCount, !digits.contains(nil) else { return false }
        return stride(from: 0, to: keyCharacterCount, by: 5).allSatisfy { start in
            digits[start..<start + 5].reduce(UInt64(0)) { $0 * 85 + UInt64($1 ?? 0) } <= UInt64(UInt32.max)
        }
    }

    /// The 85 characters of Z85 (rfc.zeromq.org/spec/32) in the order of their values.
    private static let z85Alphabet = Array(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#".utf8)
}

extension Socket {
    /// Makes the socket a client of CURVE. Precedes ``connect(_:)``.
    public func useCurve(_ client: CurveClient) throws(ZeroMQError) {
        try handle.setOption(ZMQ_CURVE_SERVERKEY, text: client.serverKey)
        try handle.setOption(ZMQ_CURVE_PUBLICKEY, text: client.publicKey)
        try handle.setOption(ZMQ_CURVE_SECRETKEY, text: client.secretKey)
        try handle.setOption(ZMQ_CONNECT_TIMEOUT, client.connectTimeoutMilliseconds)
        try handle.setOption(ZMQ_IPV6, client.usesIPv6 ? 1 : 0 as Int32)
    }
}

extension SocketHandle {
    /// Sets an option to a text, with its terminating zero.
    func setOption(_ name: Int32, text: String) throws(ZeroMQError) {
        let bytes = Array(text.utf8CString)
        guard unsafe zmq_setsockopt(pointer, name, bytes, bytes.count) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }
}

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
        try handle.setOption(ZMQ_CURVE_SERVER, 1 as Int32)
        try handle.setOption(ZMQ_CURVE_SECRETKEY, text: server.secretKey)
        let domain = Array(server.domain.utf8)
        guard unsafe zmq_setsockopt(handle.pointer, ZMQ_ZAP_DOMAIN, domain, domain.count) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }

    /// Accepts connections of this process only, over ipc. Precedes ``bind(_:)``.
    public func acceptOnlyThisProcess() throws(ZeroMQError) { try handle.setOption(ZMQ_IPC_FILTER_PID, getpid()) }
}
