public import EarshotDisk
internal import EarshotLoop
internal import Glibc
internal import LibCrypto

/// Files of a cache on disk: the index, body files, a salt and a lock.
///
/// A reader (`CacheReport`) needs no lock.
public struct CacheFolder: StoreFolder {
    /// Name in messages.
    public static let title = "the cache"
    /// File name of the index.
    public static let databaseName = "index.sqlite"
    /// File name of the lock.
    public static let lockName = "cache.lock"
    /// The salt of the digests.
    public static let otherFiles = ["salt"]

    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    private var salt: String { path + "/salt" }

    /// Returns the salt of the digests, created by the first call. It prevents a search for credentials in a table of
    /// common ones.
    /// - Throws: `StoreError`.
    public func readSalt() throws(StoreError) -> [UInt8] {
        let wanted = 32
        let file = unsafe open(salt, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw StoreError("cannot open \(salt): \(SystemError("open", number: errno))") }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: wanted)
        if unsafe read(file, &bytes, wanted) == wanted { return bytes }
        bytes = Secret.randomBytes(wanted)
        // Keys with a truncated salt could not be found again.
        guard ftruncate(file, 0) == 0, unsafe pwrite(file, bytes, wanted, 0) == wanted else {
            throw StoreError("cannot write \(salt): \(SystemError("write", number: errno))")
        }
        return bytes
    }
}
