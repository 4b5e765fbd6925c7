public import EarshotLoop

/// Folders of a broker's persistent data, for one user and one process at a time.
///
/// Protected by open file description locks, so a crash leaves no lock behind.
public enum StoreFolder {
    /// Creates a folder and a subfolder, or checks that existing ones are private to this user.
    ///
    /// - Parameters:
    ///   - inner: Name of a folder in `path`.
    ///   - files: Names in `path` that are opened by path, and therefore must not be links.
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

    /// Returns whether the folder exists, after the same checks, without changes.
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

    /// Returns the names of a database and of SQLite's auxiliary files.
    public static func files(of database: String) -> [String] {
        ["", "-wal", "-shm", "-journal"].map { database + $0 }
    }

    /// Acquires a lock.
    ///
    /// - Parameter name: Description of the protected data for messages: `the cache in …`.
    /// - Throws: `StoreError`; its kind says whether another process holds the lock.
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
