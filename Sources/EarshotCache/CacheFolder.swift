public import EarshotDisk
internal import EarshotHTTP
public import EarshotLoop
internal import Glibc
internal import LibCrypto

/// Where a cache is on the disk: the index, the bodies that are files, a salt and a lock.
///
/// One process at a time has it: open file description locks, so nothing is left behind by a crash. Who only looks
/// (`CacheReport`) needs no lock.
public struct CacheFolder: Sendable {
    /// Absolute, without a slash at its end.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    var index: String { path + "/index.sqlite" }
    var bodies: String { path + "/bodies" }
    var salt: String { path + "/salt" }

    /// Held by the process that has the cache.
    public var lock: String { path + "/cache.lock" }

    /// Makes the folders, for this user alone.
    /// - Throws: `StoreError`.
    public func prepare() throws(StoreError) {
        try StoreFolder.prepare(path, with: "bodies", files: files)
    }

    /// Returns whether the folder exists, after the checks of `prepare`.
    /// - Throws: `StoreError`.
    public func check() throws(StoreError) -> Bool { try StoreFolder.check(path, files: files) }

    private var files: [String] { StoreFolder.files(of: "index.sqlite") + ["salt", "cache.lock"] }

    /// Takes the lock.
    /// - Throws: `StoreError`; its kind says whether another process has the cache.
    public func take() throws(StoreError) -> LockFile {
        try StoreFolder.take(lock, of: "the cache in \(path)")
    }

    /// What keys and variants are digested with, made at the first call: credentials that are part of them cannot be
    /// looked up in a table of common ones.
    /// - Throws: `StoreError`.
    public func readSalt() throws(StoreError) -> [UInt8] {
        let wanted = 32
        let file = unsafe open(salt, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw StoreError("cannot open \(salt): \(SystemError("open", number: errno))") }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: wanted)
        if unsafe read(file, &bytes, wanted) == wanted { return bytes }
        bytes = Secret.randomBytes(wanted)
        // One that was cut short made keys that nobody finds again.
        guard ftruncate(file, 0) == 0, unsafe pwrite(file, bytes, wanted, 0) == wanted else {
            throw StoreError("cannot write \(salt): \(SystemError("write", number: errno))")
        }
        return bytes
    }
}
