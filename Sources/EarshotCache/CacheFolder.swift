public import EarshotDisk

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
    public func readSalt() throws(StoreError) -> [UInt8] { try Salt.read(salt) }
}
