internal import Crypto
internal import EarshotHTTP
public import EarshotLoop
internal import Glibc

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
    /// - Throws: `CacheError`.
    public func prepare() throws(CacheError) {
        var partial = ""
        for component in bodies.split(separator: "/") {
            partial += "/" + component
            guard unsafe mkdir(partial, 0o700) == 0 || errno == EEXIST else {
                throw CacheError("cannot make the folder \(partial): \(SystemError("mkdir", number: errno))")
            }
        }
        var status = stat()
        for folder in [path, bodies] {
            guard unsafe lstat(folder, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, status.st_uid == getuid()
            else { throw CacheError("\(folder) is not a folder of this user; choose another --cache-folder") }
            guard status.st_mode & 0o077 == 0 || (unsafe chmod(folder, 0o700)) == 0 else {
                throw CacheError("\(folder) cannot be closed to others")
            }
        }
    }

    /// Takes the lock.
    /// - Throws: `CacheError`; its `isTaken` says that another process has the cache.
    public func take() throws(CacheError) -> LockFile {
        let lock: LockFile?
        do throws(SystemError) {
            lock = try LockFile.take(self.lock)
        } catch {
            throw CacheError("cannot lock the cache: \(error)")
        }
        guard let lock else { throw CacheError("another broker has the cache in \(path)", isTaken: true) }
        return lock
    }

    /// What keys and variants are digested with, made at the first call: credentials that are part of them cannot be looked
    /// up in a table of common ones.
    /// - Throws: `CacheError`.
    public func readSalt() throws(CacheError) -> [UInt8] {
        let wanted = 32
        let file = unsafe open(salt, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw CacheError("cannot open \(salt): \(SystemError("open", number: errno))") }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: wanted)
        if unsafe read(file, &bytes, wanted) == wanted { return bytes }
        bytes = Secret.randomBytes(wanted)
        // One that was cut short made keys that nobody finds again.
        guard ftruncate(file, 0) == 0, unsafe pwrite(file, bytes, wanted, 0) == wanted else {
            throw CacheError("cannot write \(salt): \(SystemError("write", number: errno))")
        }
        return bytes
    }
}
