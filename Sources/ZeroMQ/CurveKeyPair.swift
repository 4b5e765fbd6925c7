internal import CLibZMQ

/// Key pair of CURVE: 32 bytes each, as 40 characters of Z85.
public struct CurveKeyPair: Equatable, Sendable {
    /// Key that the other end may know.
    public let publicKey: String
    /// Key that only its owner knows.
    public let secretKey: String

    /// Creates a new pair from the random numbers of the system.
    ///
    /// - Throws: `ZeroMQError` if libzmq is missing, or was built without CURVE.
    public static func make() throws(ZeroMQError) -> CurveKeyPair {
        try ZeroMQLibrary.load()
        var publicText = [CChar](repeating: 0, count: textBytes)
        var secretText = [CChar](repeating: 0, count: textBytes)
        guard unsafe zmq_curve_keypair(&publicText, &secretText) == 0 else { throw ZeroMQError("zmq_curve_keypair") }
        return CurveKeyPair(publicKey: string(publicText), secretKey: string(secretText))
    }

    /// Derives the pair of a secret key.
    ///
    /// - Throws: `ZeroMQError` if libzmq is missing, or `secretKey` does not have the form of a key.
    public static func of(_ secretKey: String) throws(ZeroMQError) -> CurveKeyPair {
        try ZeroMQLibrary.load()
        var publicText = [CChar](repeating: 0, count: textBytes)
        guard unsafe zmq_curve_public(&publicText, secretKey) == 0 else { throw ZeroMQError("zmq_curve_public") }
        return CurveKeyPair(publicKey: string(publicText), secretKey: secretKey)
    }

    /// Returns the text of a key of 32 bytes; nil for any other number of bytes.
    public static func text(of key: [UInt8]) -> String? {
        guard key.count == keyBytes, (try? ZeroMQLibrary.load()) != nil else { return nil }
        var text = [CChar](repeating: 0, count: textBytes)
        guard unsafe zmq_z85_encode(&text, key, key.count) != nil else { return nil }
        return string(text)
    }

    private static let keyBytes = 32
    /// Length of the text with its terminating zero.
    private static let textBytes = CurveClient.keyCharacters + 1

    private static func string(_ text: [CChar]) -> String {
        String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
