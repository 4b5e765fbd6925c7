/// HMAC with SHA-256 (RFC 2104), for keys of a cluster and of the folder of partial bodies.
public struct HMAC: Sendable {
    /// Length of a block of SHA-256 in bytes.
    private static let blockBytes = 64

    private let innerKey: [UInt8]
    private let outerKey: [UInt8]

    /// - Parameter key: Any number of bytes; more than 64 are hashed first.
    public init(key: [UInt8]) {
        var block = key.count > Self.blockBytes ? SHA256.digest(of: key.span).bytes : key
        block += [UInt8](repeating: 0, count: Self.blockBytes - block.count)
        innerKey = block.map { $0 ^ 0x36 }
        outerKey = block.map { $0 ^ 0x5c }
    }

    /// Returns the authentication code of `message`.
    public func code(of message: [UInt8]) -> Digest {
        var hash = SHA256()
        hash.update(innerKey.span)
        hash.update(message.span)
        let digest = hash.finalize()
        var last = SHA256()
        last.update(outerKey.span)
        last.update(digest.bytes.span)
        return last.finalize()
    }
}
