internal import CLibCrypto

/// Incremental SHA-256 (FIPS 180-4).
///
/// It can move between threads: it cannot be copied, so only one of them has it at a time.
@safe public struct SHA256: ~Copyable, @unchecked Sendable {
    /// Owned context; freed by `deinit`.
    private let context: OpaquePointer

    /// Algorithm, looked up once, because that takes as long as hashing a small body. Nil if libcrypto lacks it.
    // Immutable and never freed: libcrypto permits its use on any thread.
    private nonisolated(unsafe) static let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil)

    /// Creates a hash of no bytes.
    ///
    /// Traps without memory or without SHA-256 in libcrypto: neither depends on a peer.
    public init() {
        guard let context = unsafe EVP_MD_CTX_new() else { preconditionFailure("EVP_MD_CTX_new: out of memory") }
        unsafe self.context = unsafe context
        let started = unsafe EVP_DigestInit_ex(context, SHA256.algorithm, nil)
        precondition(started == 1, "EVP_DigestInit_ex: no SHA-256 in this libcrypto")
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
    }

    /// Adds bytes. The digest does not depend on the division of the input into calls.
    public mutating func update(_ bytes: Span<UInt8>) {
        let added = unsafe bytes.withUnsafeBufferPointer { unsafe EVP_DigestUpdate(context, $0.baseAddress, $0.count) }
        precondition(added == 1, "EVP_DigestUpdate failed")
    }

    /// Returns another hash of the same bytes.
    public func copy() -> SHA256 {
        let copy = SHA256()
        let copied = unsafe EVP_MD_CTX_copy_ex(copy.context, context)
        precondition(copied == 1, "EVP_MD_CTX_copy_ex failed")
        return copy
    }

    /// Returns the digest of all bytes added, and consumes the hash.
    public consuming func finalize() -> Digest {
        var bytes: [UInt8] = []
        // An initializer of the array would look up generic metadata.
        bytes.append(addingCapacity: Digest.byteCount) { output in
            unsafe output.withUnsafeMutableBufferPointer { buffer, count in
                let finished = unsafe EVP_DigestFinal_ex(context, buffer.baseAddress, nil)
                precondition(finished == 1, "EVP_DigestFinal_ex failed")
                count = Digest.byteCount
            }
        }
        return Digest(checkedBytes: bytes)
    }

    /// Returns the digest of `bytes`.
    public static func digest(of bytes: Span<UInt8>) -> Digest {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finalize()
    }
}

/// SHA-256 digest: 32 bytes, written as 64 lower-case hexadecimal digits.
public struct Digest: Hashable, Sendable {
    /// Length of a SHA-256 digest in bytes.
    static let byteCount = 32

    /// Exactly `byteCount` bytes.
    public let bytes: [UInt8]

    /// Digest in lower-case hexadecimal, 64 characters.
    public var hex: String { Hex.encode(bytes) }

    init(checkedBytes bytes: [UInt8]) {
        precondition(bytes.count == Self.byteCount, "a digest of \(bytes.count) bytes")
        self.bytes = bytes
    }

    /// Parses 64 hexadecimal digits of either case; nil for anything else.
    public init?(hex: String) {
        guard let bytes = Hex.decode(hex), bytes.count == Self.byteCount else { return nil }
        self.bytes = bytes
    }
}

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
    public func authenticationCode(of message: [UInt8]) -> Digest {
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
