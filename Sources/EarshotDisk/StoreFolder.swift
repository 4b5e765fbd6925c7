public import EarshotLoop
internal import Glibc

/// Folders of what a broker keeps, for this user alone and one process at a time.
///
/// Open file description locks: nothing is left behind by a crash.
public enum StoreFolder {
    /// Makes a folder and one in it, or checks that those there are ours alone.
    ///
    /// - Parameters:
    ///   - inner: a folder in `path`.
    ///   - option: names another place on the command line.
    /// - Throws: `StoreError`.
    public static func prepare(_ path: String, with inner: String, option: String) throws(StoreError) {
        var partial = ""
        for component in inner.split(separator: "/") {
            partial += "/" + component
            guard unsafe mkdir(partial, 0o700) == 0 || errno == EEXIST else {
                throw StoreError("cannot make the folder \(partial): \(SystemError("mkdir", number: errno))")
            }
        }
        var status = stat()
        for folder in [path, inner] {
            guard unsafe lstat(folder, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, status.st_uid == getuid()
            else { throw StoreError("\(folder) is not a folder of this user; choose another \(option)") }
            guard status.st_mode & 0o077 == 0 || (unsafe chmod(folder, 0o700)) == 0 else {
                throw StoreError("\(folder) cannot be closed to others")
            }
        }
    }

    /// Takes a lock.
    ///
    /// - Parameter name: what it is of, for people: `the cache in …`.
    /// - Throws: `StoreError`; its `isTaken` says that another process has it.
    public static func take(_ path: String, of name: String) throws(StoreError) -> LockFile {
        let lock: LockFile?
        do throws(SystemError) {
            lock = try LockFile.take(path)
        } catch {
            throw StoreError("cannot lock \(name): \(error)")
        }
        guard let lock else { throw StoreError("another broker has \(name)", isTaken: true) }
        return lock
    }
}
