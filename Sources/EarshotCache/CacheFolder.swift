public import EarshotDisk
internal import EarshotHTTP
public import EarshotLoop
internal import Glibc
internal import LibCrypto

/// Files of a cache on disk: the index, body files, a salt and a lock.
///
/// One process at a time uses it, protected by open file description locks, so a crash leaves no lock behind. A reader
/// (`CacheReport`) needs no lock.
public struct CacheFolder: Sendable {
    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    var index: String { path + "/index.sqlite" }
    var bodies: String { path + "/bodies" }
    var salt: String { path + "/salt" }

    /// Lock file, held by the process that uses the cache.
    public var lock: String { path + "/cache.lock" }

    /// Creates the folders, accessible to this user only.
    /// - Throws: `StoreError`.
    public func prepare() throws(StoreError) {
        try StoreFolder.prepare(path, with: "bodies", files: files)
    }

    /// Returns whether the folder exists, after the checks of `prepare`.
    /// - Throws: `StoreError`.
    public func check() throws(StoreError) -> Bool { try StoreFolder.check(path, files: files) }

    private var files: [String] { StoreFolder.files(of: "index.sqlite") + ["salt", "cache.lock"] }

    /// Acquires the lock.
    /// - Throws: `StoreError`; its kind says whether another process uses the cache.
    public func take() throws(StoreError) -> LockFile {
        try StoreFolder.take(lock, of: "the cache in \(path)")
    }

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
