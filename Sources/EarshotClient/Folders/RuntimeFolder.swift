internal import EarshotLoop
internal import Glibc

/// Runtime folder of a broker: its sockets and lock files. It is accessible to one user; the folder of a bus for several
/// users can be read by all.
package struct RuntimeFolder: Equatable, Sendable {
    /// Maximum bytes of a Unix socket's path without the terminating zero, see unix(7).
    static let socketPathBytes = 107

    /// Absolute path without a trailing slash.
    package let path: String

    /// Endpoint of the broker for clients.
    package var busEndpoint: String { "ipc://\(path)/bus" }
    /// Path of the broker's socket for clients.
    var busPath: String { "\(path)/bus" }
    /// Path of the broker's socket for workers.
    package var workPath: String { "\(path)/work" }
    /// Path of the lock file that the broker holds.
    package var brokerLock: String { "\(path)/broker.lock" }
    /// Path of the lock file that the supervisor holds.
    package var supervisorLock: String { "\(path)/serve.lock" }
    /// Default folder of durable requests when the runtime folder is given explicitly.
    package var ownDurable: String { "\(path)/durable" }
    /// Default folder of the cache when the runtime folder is given explicitly.
    package var ownCache: String { "\(path)/cache" }
    /// Default folder of the spool when the runtime folder is given explicitly.
    package var ownSpool: String { "\(path)/spool" }

    /// Selects a runtime folder: the given one, else `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else
    /// `earshot-UID` in the folder for temporary files.
    ///
    /// Neither reads nor creates the folder.
    ///
    /// - Parameter named: path of the folder; nil for the user's.
    /// - Throws: `ClientError` if the path is too long for a socket, is not UTF-8, or contains control characters.
    package init(named: String? = nil) throws(ClientError) {
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
        path = try Folder.checkedPath(chosen, "runtime")
        guard "\(path)/work".utf8.count <= RuntimeFolder.socketPathBytes else {
            throw ClientError(
                .pathTooLong,
                "the runtime folder \(path) is too long: a socket's path has at most \(RuntimeFolder.socketPathBytes)"
                    + " bytes, give a shorter --runtime")
        }
    }

    /// Runtime folder of a bus that serves several users of the machine.
    static let system = "/run/earshot"

    /// Returns the runtime folder in the user's session folder, which cron and su(1) do not name; nil if no session folder
    /// of this user is there.
    ///
    /// - Parameter base: parent of the session folders.
    static func ofSession(in base: String = "/run/user") throws(ClientError) -> RuntimeFolder? {
        let session = "\(base)/\(geteuid())"
        var status = stat()
        guard unsafe lstat(ByteText.path(session), &status) == 0, status.st_mode & S_IFMT == S_IFDIR,
            status.st_uid == geteuid(), status.st_mode & 0o022 == 0
        else { return nil }
        return try RuntimeFolder(named: "\(session)/earshot")
    }

    /// Selects the runtime folder of the bus that a client uses: as ``init(named:)`` does, but instead of a folder for
    /// temporary files without a running bus, that of the user's session if its bus runs, else `/run/earshot` if there is
    /// a bus that the client may trust.
    ///
    /// - Parameter named: path of the folder; nil for the user's.
    /// - Throws: `ClientError` as ``init(named:)``.
    package static func ofBus(named: String? = nil) throws(ClientError) -> RuntimeFolder {
        let usual = try RuntimeFolder(named: named)
        guard named == nil, Environment.value("EARSHOT_RUNTIME") == nil, Environment.value("XDG_RUNTIME_DIR") == nil,
            (try? usual.isServed()) != true
        else { return usual }
        if let session = try ofSession(), (try? session.isServed()) == true { return session }
        guard unsafe access("\(system)/bus", F_OK) == 0 else { return usual }
        let system = try RuntimeFolder(named: system)
        return (try? system.check()) == true ? system : usual
    }

    /// Creates the folder with mode 0700 if it is missing.
    ///
    /// - Parameter isShared: whether it may be open to other users, as that of a bus with the setting `users`.
    /// - Throws: `ClientError` if it cannot be created, or if other users have access.
    package func prepare(isShared: Bool = false) throws(ClientError) {
        do throws(FolderError) {
            try isShared ? PrivateFolder.makeOpenable(path) : PrivateFolder.makeClosed(path)
        } catch { throw ClientError(error) }
    }

    /// Returns whether the folder exists.
    ///
    /// - Throws: `ClientError` if other users than its owner and root could have prepared or could change it, so that its
    ///   content cannot be trusted.
    package func check() throws(ClientError) -> Bool {
        do throws(FolderError) { return try PrivateFolder.listeners(in: path) != nil } catch {
            throw ClientError(error)
        }
    }

    /// Whether the folder belongs to another user, who runs its broker.
    package var isForeign: Bool {
        let listeners = (try? PrivateFolder.listeners(in: path)) ?? nil
        return listeners.map { $0 != [geteuid()] } ?? false
    }

    /// Returns whether a broker or a supervisor holds a lock of the folder, or a service manager starts one for the first
    /// connection.
    ///
    /// - Throws: `ClientError` as ``check()``.
    package func isServed() throws(ClientError) -> Bool {
        guard try check() else { return false }
        // The lock files of another user cannot be read.
        if !isForeign {
            do throws(SystemError) {
                if try LockFile.isHeld(brokerLock) { return true }
                if try LockFile.isHeld(supervisorLock) { return true }
            } catch {
                throw ClientError(.folder, "cannot look for a broker in \(path): \(error)")
            }
        }
        let bus = "\(path)/bus"
        guard let probe = try? UnixSocket.connect(to: bus, of: PrivateFolder.listeners(at: bus)) else { return false }
        UnixSocket.close(probe)
        return true
    }

    /// Returns the default spool of the user: `earshot/spool` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    package static func usualSpool() throws(ClientError) -> String { try defaultPath("spool", option: "--spool") }

    /// Returns the default cache of the user: `earshot/cache` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    package static func usualCache() throws(ClientError) -> String {
        try defaultPath("cache", option: "--cache-folder")
    }

    /// Returns the folder of partial bodies: `parts` beside a cache.
    ///
    /// - Parameter cache: path of the cache; nil for the user's default.
    /// - Returns: nil if the cache has no usable path.
    package static func parts(besideCache cache: String?) -> String? {
        let cache = try? cache.map { path throws(ClientError) in try Folder.checkedPath(path, "cache") } ?? usualCache()
        return cache.map { Folder.beside($0, "parts") }
    }

    /// Returns the default folder of durable requests: `earshot/durable` in `XDG_STATE_HOME`, else in `~/.local/state`.
    ///
    /// - Throws: `ClientError` if neither `XDG_STATE_HOME` nor `HOME` is set.
    package static func usualDurable() throws(ClientError) -> String {
        if let state = Environment.value("XDG_STATE_HOME") {
            return try Folder.checkedPath("\(state)/earshot/durable", "durable")
        }
        guard let home = Environment.value("HOME") else {
            throw ClientError(
                .folder, "neither XDG_STATE_HOME nor HOME is set: give --durable-folder or --no-durable")
        }
        return try Folder.checkedPath("\(home)/.local/state/earshot/durable", "durable")
    }

    private static func defaultPath(_ name: String, option: String) throws(ClientError) -> String {
        if let cache = Environment.value("XDG_CACHE_HOME") {
            return try Folder.checkedPath("\(cache)/earshot/\(name)", name)
        }
        guard let home = Environment.value("HOME") else {
            throw ClientError(.folder, "neither XDG_CACHE_HOME nor HOME is set: give \(option)")
        }
        return try Folder.checkedPath("\(home)/.cache/earshot/\(name)", name)
    }
}

/// Folders of a private bus: this one in a folder for temporary files, and one in the user's cache for the spool, from
/// where partial bodies can be renamed into the folder that keeps them.
extension RuntimeFolder {
    /// Creates the spool of a private bus.
    ///
    /// - Parameter parts: folder of partial bodies; nil for none.
    /// - Returns: path of the spool, in the runtime folder if the cache has no usable place for it.
    package func makePrivateSpool(besideParts parts: String?) -> String {
        guard let parts else { return ownSpool }
        let spool = "\(privateFolder(besideParts: parts))/spool"
        do throws(FolderError) {
            // Nothing is created in a folder where others can replace it.
            try PrivateFolder.checkFoldersAbove(spool)
            try PrivateFolder.makeStore(spool)
            return spool
        } catch { return ownSpool }
    }

    /// Removes both folders of a private bus, as far as they exist.
    package func removePrivate(besideParts parts: String?) {
        PrivateFolder.remove(path)
        if let parts { PrivateFolder.remove(privateFolder(besideParts: parts)) }
    }

    /// Returns the folder of the spool's folder: its name has the random part of this folder's name.
    func privateFolder(besideParts parts: String) -> String {
        let name = path.split(separator: "/").last ?? ""
        return Folder.beside(parts, "private-\(name.hasPrefix("earshot-") ? name.dropFirst(8) : name)")
    }
}
