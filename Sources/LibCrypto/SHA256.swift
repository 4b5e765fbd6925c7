internal import CLibCrypto

/// An incremental SHA-256 (FIPS 180-4): bytes go in as they arrive, the digest comes out once.
///
/// It can go from thread to thread: it cannot be copied, so one of them has it at a time.
@safe public struct SHA256: ~Copyable, @unchecked Sendable {
    /// Owned; freed by `deinit`.
    private let context: OpaquePointer

    /// The algorithm, looked up once: that takes as long as the hash of a small body. Nil if libcrypto has none.
    // Never changed and never freed: libcrypto lets any thread use it.
    private nonisolated(unsafe) static let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil)

    /// A hash that has seen no byte.
    ///
    /// Stops the process when libcrypto has no memory or no SHA-256: neither depends on anything a peer does.
    public init() {
        guard let context = unsafe EVP_MD_CTX_new() else { preconditionFailure("EVP_MD_CTX_new: out of memory") }
        unsafe self.context = unsafe context
        let started = unsafe EVP_DigestInit_ex(context, SHA256.algorithm, nil)
        precondition(started == 1, "EVP_DigestInit_ex: no SHA-256 in this libcrypto")
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
    }

    /// Adds bytes. Any division of the input into calls gives the same digest.
    public mutating func update(_ bytes: Span<UInt8>) {
        let added = unsafe bytes.withUnsafeBufferPointer { unsafe EVP_DigestUpdate(context, $0.baseAddress, $0.count) }
        precondition(added == 1, "EVP_DigestUpdate failed")
    }

    /// The digest of all bytes added; the hash is spent.
    public consuming func finalize() -> Digest {
        var bytes = [UInt8](repeating: 0, count: Digest.byteCount)
        let finished = unsafe bytes.withUnsafeMutableBufferPointer { buffer in
            unsafe EVP_DigestFinal_ex(context, buffer.baseAddress, nil)
        }
        precondition(finished == 1, "EVP_DigestFinal_ex failed")
        return Digest(checked: bytes)
    }

    /// The digest of bytes that are all there.
    public static func digest(of bytes: Span<UInt8>) -> Digest {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finalize()
    }
}
