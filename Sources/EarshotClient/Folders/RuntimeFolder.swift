internal import EarshotLoop
internal import Glibc

/// Runtime folder of a broker: its sockets and lock files, accessible to one user.
public struct RuntimeFolder: Equatable, Sendable {
    /// Maximum bytes of a Unix socket's path without the terminating zero, see unix(7).
    static let socketPathBytes = 107

    /// Absolute path without a trailing slash.
    public let path: String

    /// Endpoint of the broker for clients.
    public var busEndpoint: String { "ipc://\(path)/bus" }
    /// Path of the broker's socket for workers.
    public var workPath: String { "\(path)/work" }
    /// Path of the lock file that the broker holds.
    public var brokerLock: String { "\(path)/broker.lock" }
    /// Path of the lock file that the supervisor holds.
    public var supervisorLock: String { "\(path)/serve.lock" }
    /// Default folder of durable requests when the runtime folder is given explicitly.
    public var ownDurable: String { "\(path)/durable" }
    /// Default folder of the cache when the runtime folder is given explicitly.
    public var ownCache: String { "\(path)/cache" }
    /// Default folder of the spool when the runtime folder is given explicitly.
    public var ownSpool: String { "\(path)/spool" }

    /// Selects a runtime folder: the given one, else `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else
    /// `earshot-UID` in the folder for temporary files.
    ///
    /// Neither reads nor creates the folder.
    ///
    /// - Parameter named: path of the folder; nil for the user's.
    /// - Throws: `ClientError` if the path is too long for a socket, is not UTF-8, or contains control characters.
    public init(named: String? = nil) throws(ClientError) {
        let chosen =
            if let named {
                named
            } else if let variable = Environment.value("EARSHOT_RUNTIME") {
                variable
            } else if let folder = Environment.value("XDG_RUNTIME_DIR") {
                "\(folder)/earshot"
            } else {
                "\(P_tmpdir)/earshot-\(geteuid())"
            }
        path = try Folder.named(chosen, "runtime")
        guard "\(path)/work".utf8.count <= RuntimeFolder.socketPathBytes else {
            throw ClientError(
                .pathTooLong,
                "the runtime folder \(path) is too long: a socket's path has at most \(RuntimeFolder.socketPathBytes)"
                    + " bytes, give a shorter --runtime")
        }
    }

    /// Creates the folder with mode 0700 if it is missing.
    ///
    /// - Throws: `ClientError` if it cannot be created, or if other users have access.
    public func prepare() throws(ClientError) {
        do throws(FolderError) { try PrivateFolder.makeClosed(path) } catch { throw ClientError(error) }
    }

    /// Returns whether the folder exists.
    ///
    /// - Throws: `ClientError` if other users have access, so that its content cannot be trusted.
    public func check() throws(ClientError) -> Bool {
        do throws(FolderError) { return try PrivateFolder.isClosed(path) } catch { throw ClientError(error) }
    }

    /// Returns whether a broker or a supervisor holds a lock of the folder, or a service manager starts one for the first
    /// connection.
    ///
    /// - Throws: `ClientError` if other users have access, so that its content cannot be trusted.
    public func isServed() throws(ClientError) -> Bool {
        guard try check() else { return false }
        do throws(SystemError) {
            if try LockFile.isHeld(brokerLock) { return true }
            if try LockFile.isHeld(supervisorLock) { return true }
        } catch {
            throw ClientError(.folder, "cannot look for a broker in \(path): \(error)")
        }
        guard let probe = try? UnixSocket.connect(to: "\(path)/bus") else { return false }
        UnixSocket.close(probe)
        return true
    }

    /// Returns the default spool of the user: `earshot/spool` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    public static func usualSpool() throws(ClientError) -> String { try usual("spool", option: "--spool") }

    /// Returns the default cache of the user: `earshot/cache` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    public static func usualCache() throws(ClientError) -> String { try usual("cache", option: "--cache-folder") }

    /// Returns the default folder of durable requests: `earshot/durable` in `XDG_STATE_HOME`, else in `~/.local/state`.
    ///
    /// - Throws: `ClientError` if neither `XDG_STATE_HOME` nor `HOME` is set.
    public static func usualDurable() throws(ClientError) -> String {
        if let state = Environment.value("XDG_STATE_HOME") {
            return try Folder.named("\(state)/earshot/durable", "durable")
        }
        guard let home = Environment.value("HOME") else {
            throw ClientError(
                .folder, "neither XDG_STATE_HOME nor HOME is set: give --durable-folder or --no-durable")
        }
        return try Folder.named("\(home)/.local/state/earshot/durable", "durable")
    }

    private static func usual(_ name: String, option: String) throws(ClientError) -> String {
        if let cache = Environment.value("XDG_CACHE_HOME") { return try Folder.named("\(cache)/earshot/\(name)", name) }
        guard let home = Environment.value("HOME") else {
            throw ClientError(.folder, "neither XDG_CACHE_HOME nor HOME is set: give \(option)")
        }
        return try Folder.named("\(home)/.cache/earshot/\(name)", name)
    }
}
