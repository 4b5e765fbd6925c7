public import EarshotLoop

/// Folders of what a broker keeps, for this user alone and one process at a time.
///
/// Open file description locks: nothing is left behind by a crash.
public enum StoreFolder {
    /// Makes a folder and one in it, or checks that those there are this user's alone.
    ///
    /// - Parameters:
    ///   - inner: the name of a folder in `path`.
    ///   - files: names in `path` that are opened by path, and therefore must not be links.
    /// - Throws: `StoreError`.
    public static func prepare(_ path: String, with inner: String, files: [String]) throws(StoreError) {
        do throws(FolderError) {
            try PrivateFolder.makeStore(path)
            try PrivateFolder.makeStore("\(path)/\(inner)")
            try PrivateFolder.checkFiles(files, in: path)
        } catch {
            throw StoreError(error)
        }
    }

    /// Returns whether the folder exists, after the same checks; nothing is made or changed.
    /// - Throws: `StoreError`.
    public static func check(_ path: String, files: [String]) throws(StoreError) -> Bool {
        do throws(FolderError) {
            guard try PrivateFolder.isStore(path) else { return false }
            try PrivateFolder.checkFiles(files, in: path)
            return true
        } catch {
            throw StoreError(error)
        }
    }

    /// A database and the files that SQLite keeps beside it, by name.
    public static func files(of database: String) -> [String] {
        ["", "-wal", "-shm", "-journal"].map { database + $0 }
    }

    /// Takes a lock.
    ///
    /// - Parameter name: what it is of, for people: `the cache in …`.
    /// - Throws: `StoreError`; its kind says whether another process has it.
    public static func take(_ path: String, of name: String) throws(StoreError) -> LockFile {
        let lock: LockFile?
        do throws(SystemError) {
            lock = try LockFile.take(path)
        } catch {
            throw StoreError("cannot lock \(name): \(error)")
        }
        guard let lock else { throw StoreError("another broker has \(name)", .taken) }
        return lock
    }
}
