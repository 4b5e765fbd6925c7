public import EarshotLoop

/// Folder of a broker's persistent data, for one user and one process at a time: a database, body files and a lock.
///
/// Protected by an open file description lock, so a crash leaves no lock behind.
public protocol StoreFolder: Sendable {
    /// Absolute path without trailing slash.
    var path: String { get }
    /// Description of the data for messages: `the cache`.
    static var title: String { get }
    /// File name of the database.
    static var databaseName: String { get }
    /// File name of the lock.
    static var lockName: String { get }
    /// Names of further files that are opened by path.
    static var otherFiles: [String] { get }
}

extension StoreFolder {
    /// Path of the database.
    public var database: String { "\(path)/\(Self.databaseName)" }
    /// Path of the folder of body files.
    public var bodies: String { path + "/bodies" }
    /// Path of the lock file, held by the process that uses the data.
    public var lock: String { "\(path)/\(Self.lockName)" }

    /// Names of the database and of SQLite's auxiliary files.
    public static var databaseFiles: [String] { ["", "-wal", "-shm", "-journal"].map { databaseName + $0 } }

    /// Files that are opened by path, and therefore must not be links.
    private var files: [String] { Self.databaseFiles + [Self.lockName] + Self.otherFiles }

    /// Creates the folders, or checks that existing ones are private to this user.
    /// - Throws: `StoreError`.
    public func prepare() throws(StoreError) {
        do throws(FolderError) {
            try PrivateFolder.makeStore(path)
            try PrivateFolder.makeStore(bodies)
            try PrivateFolder.checkFiles(files, in: path)
        } catch {
            throw StoreError(error)
        }
    }

    /// Returns whether the folder exists, after the checks of `prepare`, without changes.
    /// - Throws: `StoreError`.
    public func check() throws(StoreError) -> Bool {
        do throws(FolderError) {
            guard try PrivateFolder.isStore(path) else { return false }
            try PrivateFolder.checkFiles(files, in: path)
            return true
        } catch {
            throw StoreError(error)
        }
    }

    /// Acquires the lock.
    ///
    /// - Throws: `StoreError`; its kind says whether another process holds the lock.
    public func take() throws(StoreError) -> LockFile {
        let taken: LockFile?
        do throws(SystemError) {
            taken = try LockFile.take(lock)
        } catch {
            throw StoreError("cannot lock \(Self.title) in \(path): \(error)")
        }
        guard let taken else { throw StoreError("another broker has \(Self.title) in \(path)", .taken) }
        return taken
    }
}

/// Reason why stored data cannot be used, as a message with the remedy.
public struct StoreError: Error, CustomStringConvertible {
    /// Kinds of reasons, by their remedy.
    public enum Kind: Equatable, Sendable {
        /// Another process holds the lock.
        case taken
        /// Another user could have prepared or could change it.
        case distrusted
        /// It belongs to a newer version or another program.
        case foreign
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
        self.init(error.description, error.isDistrust ? .distrusted : .other)
    }
}
