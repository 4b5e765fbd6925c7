public import EarshotLoop

/// Folder of a broker's persistent data, for one user and one process at a time: a database, body files and a lock.
///
/// Protected by an open file description lock, so a crash leaves no lock behind.
public protocol StoreFolder: Sendable {
    /// Absolute path without trailing slash.
    var path: String { get }
    /// Description of the data for messages: `the cache`.
    static var titleInMessages: String { get }
    /// File name of the database.
    static var databaseName: String { get }
    /// File name of the lock.
    static var lockName: String { get }
    /// Names of further files that are opened by path.
    static var otherFileNames: [String] { get }
}

extension StoreFolder {
    /// Path of the database.
    public var databasePath: String { "\(path)/\(Self.databaseName)" }
    /// Path of the folder of body files.
    public var bodiesPath: String { path + "/bodies" }
    /// Path of the lock file, held by the process that uses the data.
    public var lockPath: String { "\(path)/\(Self.lockName)" }

    /// Names of the database and of SQLite's auxiliary files.
    public static var databaseFileNames: [String] { ["", "-wal", "-shm", "-journal"].map { databaseName + $0 } }

    /// Files that are opened by path, and therefore must not be links.
    private var allFileNames: [String] { Self.databaseFileNames + [Self.lockName] + Self.otherFileNames }

    /// Creates the folders, or checks that existing ones are private to this user.
    /// - Throws: `StoreError`.
    public func prepareFolders() throws(StoreError) {
        do throws(FolderError) {
            try PrivateFolder.makeOrCheckStore(path)
            try PrivateFolder.makeOrCheckStore(bodiesPath)
            try PrivateFolder.checkFiles(allFileNames, in: path)
        } catch {
            throw StoreError(error)
        }
    }

    /// Returns whether the folder exists, after the checks of `prepareFolders`, without changes.
    /// - Throws: `StoreError`.
    public func checkExistingFolders() throws(StoreError) -> Bool {
        do throws(FolderError) {
            guard try PrivateFolder.existsStore(path) else { return false }
            try PrivateFolder.checkFiles(allFileNames, in: path)
            return true
        } catch {
            throw StoreError(error)
        }
    }

    /// Acquires the lock.
    ///
    /// - Throws: `StoreError`; its kind shows whether another process holds the lock.
    public func acquireLock() throws(StoreError) -> LockFile {
        let taken: LockFile?
        do throws(SystemError) {
            taken = try LockFile.acquire(lockPath)
        } catch {
            throw StoreError("cannot lock \(Self.titleInMessages) in \(path): \(error)")
        }
        guard let taken else { throw StoreError("another broker has \(Self.titleInMessages) in \(path)", .lockHeld) }
        return taken
    }
}

/// Reason why stored data cannot be used, as a message with the remedy.
public struct StoreError: Error, CustomStringConvertible {
    /// Kinds of reasons, by their remedy.
    public enum Kind: Equatable, Sendable {
        /// Another process holds the lock.
        case lockHeld
        /// Another user could have prepared or could change it.
        case writableByOthers
        /// It belongs to a newer version or another program.
        case incompatible
        case other
    }

    public let description: String
    public let kind: Kind

    public init(_ description: String, _ kind: Kind = .other) {
        self.description = description
        self.kind = kind
    }

    /// Creates an error for an unusable folder.
    public init(_ error: FolderError) {
        self.init(error.description, error.isUntrustedFolder ? .writableByOthers : .other)
    }
}
