internal import CLibCrypto
internal import Glibc

/// Source of random bytes for keys, tokens and salts.
public enum Secret {
    /// Returns bytes from the kernel's cryptographic generator, getrandom(2).
    ///
    /// Blocks only early at boot, until the kernel has seeded its generator. Stops the process if the kernel lacks
    /// getrandom: there is no safe substitute.
    ///
    /// - Parameter count: Number of bytes, 0 or more.
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
}
