internal import CLibCrypto
internal import Glibc

/// Secrets: where they come from and how they are compared.
public enum Secret {
    /// Bytes from the kernel's generator (getrandom(2)), fit for keys.
    ///
    /// Blocks only before the system's generator was first seeded, early at boot. Stops the process when the kernel
    /// has no getrandom: there is no safe way on.
    ///
    /// - Parameter count: how many, 0 or more.
    public static func randomBytes(_ count: Int) -> [UInt8] {
        unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            while filled < count {
                let got = unsafe getrandom(buffer.baseAddress.map { unsafe $0 + filled }, count - filled, 0)
                if got < 0 && errno == EINTR { continue }
                precondition(got > 0, "getrandom: errno \(errno)")
                filled += got
            }
        }
    }

    /// Whether both are the same bytes, in a time that depends on their lengths alone.
    public static func areEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        guard one.count == other.count else { return false }
        return unsafe one.withUnsafeBytes { left in
            unsafe other.withUnsafeBytes { right in
                unsafe CRYPTO_memcmp(left.baseAddress, right.baseAddress, left.count) == 0
            }
        }
    }
}
