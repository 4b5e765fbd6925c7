internal import EarshotLoop
internal import Glibc

/// The folder in which a broker listens and by which clients find it: `bus`, `work` and lock files, for one user alone.
public struct RuntimeFolder: Equatable, Sendable {
    /// Bytes that fit into a Unix socket's address, unix(7), without the zero at the end.
    static let socketPathBytes = 107

    /// Absolute, without a slash at its end.
    public let path: String

    /// Where the broker's clients connect.
    public var busEndpoint: String { "ipc://\(path)/bus" }
    /// Where the workers connect.
    public var workPath: String { "\(path)/work" }
    /// Held by the broker.
    public var brokerLock: String { "\(path)/broker.lock" }
    /// Held by the supervisor.
    public var supervisorLock: String { "\(path)/serve.lock" }
    /// Where durable requests are when they were not named but the runtime folder was.
    public var ownDurable: String { "\(path)/durable" }
    /// Where the cache is when it was not named but the runtime folder was.
    public var ownCache: String { "\(path)/cache" }
    /// Where the spool is when it was not named but the runtime folder was.
    public var ownSpool: String { "\(path)/spool" }

    /// The folder named, else that of `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else `earshot-UID` in the
    /// system's folder for temporary files. Nothing is looked at or made yet.
    ///
    /// - Throws: `ClientError` when its path is too long for a socket.
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

    /// Makes the folder, for this user alone, if it is not there.
    ///
    /// - Throws: `ClientError` when it cannot be made, or others could get in.
    public func prepare() throws(ClientError) {
        do throws(FolderError) { try PrivateFolder.makeClosed(path) } catch { throw ClientError(error) }
    }

    /// Returns whether the folder exists.
    ///
    /// - Throws: `ClientError` when others could get in: nothing in it is to be trusted.
    public func check() throws(ClientError) -> Bool {
        do throws(FolderError) { return try PrivateFolder.isClosed(path) } catch { throw ClientError(error) }
    }

    /// Whether a broker or a supervisor serves here, found by its locks.
    ///
    /// - Throws: `ClientError` when the folder is another user's: nothing in it is to be trusted.
    public func isServed() throws(ClientError) -> Bool {
        guard try check() else { return false }
        do throws(SystemError) {
            if try LockFile.isHeld(brokerLock) { return true }
            return try LockFile.isHeld(supervisorLock)
        } catch {
            throw ClientError(.folder, "cannot look for a broker in \(path): \(error)")
        }
    }

    /// The user's usual spool: `earshot/spool` in `XDG_CACHE_HOME`, else in `.cache` at home.
    ///
    /// - Throws: `ClientError` when neither is known.
    public static func usualSpool() throws(ClientError) -> String { try usual("spool", option: "--spool") }

    /// The user's usual cache, beside the spool.
    ///
    /// - Throws: as `usualSpool`.
    public static func usualCache() throws(ClientError) -> String { try usual("cache", option: "--cache-folder") }

    /// Where the user's durable requests are: `earshot/durable` in `XDG_STATE_HOME`, else in `.local/state` at home.
    ///
    /// - Throws: `ClientError` when neither is known.
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
