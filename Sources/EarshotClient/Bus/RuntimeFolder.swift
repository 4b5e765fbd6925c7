internal import EarshotLoop
internal import Glibc

/// Runtime folder of a broker: its sockets and lock files. It is accessible to one user; the folder of a bus for
/// several users can be read by all.
package struct RuntimeFolder: Equatable, Sendable {
    /// Maximum bytes of a Unix socket's path without the terminating zero, see unix(7).
    static let maximumSocketPathBytes = 107

    /// Absolute path without a trailing slash.
    package let path: String

    /// Endpoint of the broker for clients.
    package var busEndpoint: String { "ipc://\(path)/bus" }
    /// Path of the broker's socket for clients.
    var busSocketPath: String { "\(path)/bus" }
    /// Path of the broker's socket for workers.
    package var workSocketPath: String { "\(path)/work" }
    /// Path of the lock file that the broker holds.
    package var brokerLock: String { "\(path)/broker.lock" }
    /// Path of the lock file that the supervisor holds.
    package var supervisorLock: String { "\(path)/serve.lock" }
    /// Default folder of durable requests if the runtime folder is set explicitly.
    package var innerDurablePath: String { "\(path)/durable" }
    /// Default folder of the cache if the runtime folder is set explicitly.
    package var innerCachePath: String { "\(path)/cache" }
    /// Default folder of the spool if the runtime folder is set explicitly.
    package var innerSpoolPath: String { "\(path)/spool" }

    /// Selects a runtime folder: the named one, else `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else
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
        path = try Folder.checkedPath(chosen, purpose: "runtime")
        guard "\(path)/work".utf8.count <= RuntimeFolder.maximumSocketPathBytes else {
            throw ClientError(
                .pathTooLong,
                "the runtime folder \(path) is too long: a socket's path has at most \(RuntimeFolder.maximumSocketPathBytes)"
                    + " bytes, give a shorter --runtime")
        }
    }

    /// Runtime folder of a bus that serves several users of the machine.
    static let systemPath = "/run/earshot"

    /// Returns the runtime folder in the user's session folder, which cron and su(1) do not name; nil if no session
    /// folder of this user is there.
    ///
    /// - Parameter base: parent of the session folders.
    static func ofSession(in base: String = "/run/user") throws(ClientError) -> RuntimeFolder? {
        let session = "\(base)/\(geteuid())"
        var status = stat()
        guard unsafe lstat(ByteText.cString(session), &status) == 0, status.st_mode & S_IFMT == S_IFDIR,
            status.st_uid == geteuid(), status.st_mode & 0o022 == 0
        else { return nil }
        return try RuntimeFolder(named: "\(session)/earshot")
    }

    /// Selects the runtime folder of the bus that a client uses: as ``init(named:)`` does, but instead of a folder for
    /// temporary files without a running bus, that of the user's session if its bus runs, else `/run/earshot` if there
    /// is a bus that the client may trust.
    ///
    /// - Parameter named: path of the folder; nil for the user's.
    /// - Throws: `ClientError` as ``init(named:)``.
    package static func ofBus(named: String? = nil) throws(ClientError) -> RuntimeFolder {
        let usual = try RuntimeFolder(named: named)
        guard named == nil, Environment.value("EARSHOT_RUNTIME") == nil, Environment.value("XDG_RUNTIME_DIR") == nil,
            (try? usual.hasBroker()) != true
        else { return usual }
        if let session = try ofSession(), (try? session.hasBroker()) == true { return session }
        guard unsafe access("\(systemPath)/bus", F_OK) == 0 else { return usual }
        let system = try RuntimeFolder(named: systemPath)
        return (try? system.check()) == true ? system : usual
    }

    /// Creates the folder with mode 0700 if it is missing.
    ///
    /// - Parameter isShared: whether it may be open to other users, as that of a bus with the setting `users`.
    /// - Throws: `ClientError` if it cannot be created, or if other users have access.
    package func prepare(isShared: Bool = false) throws(ClientError) {
        do throws(FolderError) {
            try isShared ? PrivateFolder.makeOrCheckOpenable(path) : PrivateFolder.makeOrCheckClosed(path)
        } catch { throw ClientError(error) }
    }

    /// Returns whether the folder exists.
    ///
    /// - Throws: `ClientError` if other users than its owner and root could have prepared or could change it, so that
    ///   its content cannot be trusted.
    package func check() throws(ClientError) -> Bool {
        do throws(FolderError) {
            return try PrivateFolder.trustedListeners(inFolder: path) != nil
        } catch {
            throw ClientError(error)
        }
    }

    /// Whether the folder belongs to another user, who runs its broker.
    package var isOwnedByOtherUser: Bool {
        let listeners = (try? PrivateFolder.trustedListeners(inFolder: path)) ?? nil
        return listeners.map { $0 != [geteuid()] } ?? false
    }

    /// Returns whether a broker or a supervisor holds a lock of the folder, or a service manager starts one for the
    /// first connection.
    ///
    /// - Throws: `ClientError` as ``check()``.
    package func hasBroker() throws(ClientError) -> Bool {
        guard try check() else { return false }
        // The lock files of another user cannot be read.
        if !isOwnedByOtherUser {
            do throws(SystemError) {
                if try LockFile.isHeld(brokerLock) { return true }
                if try LockFile.isHeld(supervisorLock) { return true }
            } catch {
                throw ClientError(.folder, "cannot look for a broker in \(path): \(error)")
            }
        }
        let bus = "\(path)/bus"
        guard let probe = try? UnixSocket.connect(to: bus, ownedBy: PrivateFolder.trustedListeners(atSocket: bus))
        else { return false }
        UnixSocket.close(probe)
        return true
    }

    /// Returns the default spool of the user: `earshot/spool` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    package static func userSpoolPath() throws(ClientError) -> String { try defaultPath("spool", option: "--spool") }

    /// Returns the default cache of the user: `earshot/cache` in `XDG_CACHE_HOME`, else in `~/.cache`.
    ///
    /// - Throws: `ClientError` if neither `XDG_CACHE_HOME` nor `HOME` is set.
    package static func userCachePath() throws(ClientError) -> String {
        try defaultPath("cache", option: "--cache-folder")
    }

    /// Returns the folder of partial bodies: `parts` beside a cache.
    ///
    /// - Parameter cache: path of the cache; nil for the user's default.
    /// - Returns: nil if the cache has no usable path.
    package static func partsPath(besideCache cache: String?) -> String? {
        let cache =
            try? cache.map { path throws(ClientError) in try Folder.checkedPath(path, purpose: "cache") }
            ?? userCachePath()
        return cache.map { Folder.siblingPath(of: $0, name: "parts") }
    }

    /// Returns the default folder of durable requests: `earshot/durable` in `XDG_STATE_HOME`, else in `~/.local/state`.
    ///
    /// - Throws: `ClientError` if neither `XDG_STATE_HOME` nor `HOME` is set.
    package static func userDurablePath() throws(ClientError) -> String {
        if let state = Environment.value("XDG_STATE_HOME") {
            return try Folder.checkedPath("\(state)/earshot/durable", purpose: "durable")
        }
        guard let home = Environment.value("HOME") else {
            throw ClientError(
                .folder, "neither XDG_STATE_HOME nor HOME is set: give --durable-folder or --no-durable")
        }
        return try Folder.checkedPath("\(home)/.local/state/earshot/durable", purpose: "durable")
    }

    private static func defaultPath(_ name: String, option: String) throws(ClientError) -> String {
        if let cache = Environment.value("XDG_CACHE_HOME") {
            return try Folder.checkedPath("\(cache)/earshot/\(name)", purpose: name)
        }
        guard let home = Environment.value("HOME") else {
            throw ClientError(.folder, "neither XDG_CACHE_HOME nor HOME is set: give \(option)")
        }
        return try Folder.checkedPath("\(home)/.cache/earshot/\(name)", purpose: name)
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
        guard let parts else { return innerSpoolPath }
        let spool = "\(privateFolder(besideParts: parts))/spool"
        do throws(FolderError) {
            // Nothing is created in a folder where others can replace it.
            try PrivateFolder.checkFoldersAbove(spool)
            try PrivateFolder.makeOrCheckStore(spool)
            return spool
        } catch { return innerSpoolPath }
    }

    /// Removes both folders of a private bus, as far as they exist.
    package func removePrivate(besideParts parts: String?) {
        PrivateFolder.remove(path)
        if let parts { PrivateFolder.remove(privateFolder(besideParts: parts)) }
    }

    /// Returns the folder that contains the spool. Its name has the random part of this folder's name.
    func privateFolder(besideParts parts: String) -> String {
        let name = path.split(separator: "/").last ?? ""
        return Folder.siblingPath(of: parts, name: "private-\(name.hasPrefix("earshot-") ? name.dropFirst(8) : name)")
    }
}

/// Operations on the paths of folders, for `RuntimeFolder` and for paths on the command line.
package enum Folder {
    /// Returns the absolute form of `path`, without trailing slashes.
    package static func absolutePath(_ path: String) -> String {
        var path = Substring(path)
        while path.count > 1, path.last == "/" { path.removeLast() }
        guard path.first != "/" else { return String(path) }
        while path.hasPrefix("./") { path.removeFirst(2) }
        guard let current = unsafe getcwd(nil, 0) else { return String(path) }
        defer { unsafe free(current) }
        let folder = unsafe ByteText.text(cString: current)
        return path.isEmpty || path == "." ? folder : "\(folder == "/" ? "" : folder)/\(path)"
    }

    /// Returns whether a path can stand in the head of a message: UTF-8 without control characters.
    package static func isWritable(_ path: String) -> Bool {
        !ByteText.containsNonUTF8Bytes(path) && path.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    }

    /// Returns the absolute path of a folder that messages name.
    ///
    /// - Parameter kind: purpose of the folder, for the error.
    /// - Throws: `ClientError` if the path is empty, or a message cannot contain it.
    package static func checkedPath(_ path: String, purpose kind: String) throws(ClientError) -> String {
        guard !path.isEmpty else {
            throw ClientError(.folder, "the path of the \(kind) folder is empty: give the path of a folder")
        }
        let path = absolutePath(path)
        guard isWritable(path) else {
            throw ClientError(
                .folder, "the \(kind) folder \(path) holds a control character or is not UTF-8: choose another path")
        }
        return path
    }

    /// Returns the path of `name` in the folder that contains the absolute `path`.
    package static func siblingPath(of path: String, name: String) -> String {
        "\(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])/\(name)"
    }

    /// Creates a folder and its missing parents with `mode` and the umask.
    ///
    /// - Throws: `ClientError` if one cannot be created.
    package static func makeDirectory(_ path: String, mode: UInt32) throws(ClientError) {
        guard unsafe mkdir(ByteText.cString(path), mode) != 0, errno != EEXIST else { return }
        var number = errno
        if number == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex {
            try makeDirectory(String(path[..<slash]), mode: mode)
            if unsafe mkdir(ByteText.cString(path), mode) == 0 || errno == EEXIST { return }
            number = errno
        }
        throw ClientError(.folder, unsafe "cannot create the folder \(path): \(String(cString: strerror(number)))")
    }
}

/// Environment variables of the process, for the search for a bus and its folders.
package enum Environment {
    /// Returns a variable; nil if it is unset or empty. Bytes that are not UTF-8 are kept in the form of `ByteText`.
    ///
    /// - Parameter name: name of the variable.
    package static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe ByteText.text(cString: value)
        return text.isEmpty ? nil : text
    }
}
