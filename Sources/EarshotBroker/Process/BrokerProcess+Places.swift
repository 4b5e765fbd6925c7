internal import EarshotCore
internal import EarshotDisk
internal import EarshotDurable
internal import EarshotLoop
internal import Glibc
internal import Logging

/// The runtime folder, and the places that the broker creates again after their removal.
extension BrokerProcess {
    private var lockPath: String { options.runtimeFolder + "/broker.lock" }

    /// Returns the path of a socket.
    static func socketPath(_ options: BrokerOptions, _ name: String) throws -> String {
        let path = options.runtimeFolder + "/" + name
        // sockaddr_un, unix(7): 108 bytes including the terminating NUL.
        guard path.utf8.count <= 107 else {
            throw BrokerError(
                "\(path) is longer than the 107 bytes a socket's path may have; choose a shorter --runtime")
        }
        return path
    }

    /// Creates the runtime folder or checks the existing one. A supervisor has checked it already, and an earlier
    /// broker may have opened it to other users.
    static func makeRuntimeFolder(_ options: BrokerOptions) throws(FolderError) {
        if options.supervisorDescriptor == nil, options.settings[.allowedUsers].isEmpty {
            try PrivateFolder.makeOrCheckClosed(options.runtimeFolder)
        } else {
            try PrivateFolder.makeOrCheckOpenable(options.runtimeFolder)
        }
    }

    /// Opens the runtime folder and the socket `bus` to the users of the settings, or closes both.
    func applyPermittedUsers() throws {
        let users = try UserList(core.settings[.allowedUsers])
        let runtime = options.runtimeFolder
        if !users.isEmpty {
            do throws(FolderError) {
                try PrivateFolder.checkPlacedByRoot(runtime, owner: geteuid())
            } catch {
                logger.warning(
                    "programs of other users do not trust this runtime folder; use one below /run",
                    metadata: ["error": "\(error)", "path": "\(runtime)"])
            }
        }
        try PrivateFolder.setOpenToOthers(!users.isEmpty, path: runtime)
        try clientPort.permitUsers(users)
    }

    /// Creates the record of all places, with the watch over them.
    func makePathWatch() throws(SystemError) -> PathWatch {
        let runtime = options.runtimeFolder
        let durable = durableStore == nil ? nil : options.durableFolder.map { DurableFolder($0) }
        var watchedPaths = [
            PathWatch.WatchedPath(name: "runtime", path: runtime) { [unowned self] in
                lock.isInPlace(at: lockPath)
            } recreatePath: { [unowned self] in
                if clientPort.permitsOtherUsers {
                    try PrivateFolder.makeOrCheckOpenable(runtime)
                    try PrivateFolder.setOpenToOthers(true, path: runtime)
                } else {
                    try PrivateFolder.makeOrCheckClosed(runtime)
                }
                guard let lock = try LockFile.acquire(lockPath) else {
                    throw BrokerError("another broker runs in \(runtime)")
                }
                self.lock = lock
            },
            watchedSocket("bus", clientPort), watchedSocket("work", workerPort),
            PathWatch.WatchedPath(name: "spool", path: spool.path) { [unowned self] in
                spool.isInPlace
            } unusableReason: { [unowned self] in
                spool.unwritableReason
            } recreatePath: { [unowned self] in
                try spool.reopenFolder()
                core.spoolFolderReplaced()
            },
        ]
        if let durable { watchedPaths.append(watchedDurableFolder(durable)) }
        let watchAll = { [spool] (watch: RemovalWatch) in
            watch.watchEntries(of: runtime)
            watch.watchFile(spool.lockPath)
            watch.watchMoves(of: spool.path)
            guard let durable else { return }
            watch.watchEntries(of: durable.path)
            watch.watchMoves(of: durable.path)
        }
        return try PathWatch(
            watchedPaths, loop: loop, logger: logger, addWatches: options.watchesForRemovedPaths ? watchAll : nil
        ) { [unowned self] in
            core.pathFaults = $0
        }
    }

    /// The folder of durable requests is not created again: only an administrator can bring its requests back.
    private func watchedDurableFolder(_ folder: DurableFolder) -> PathWatch.WatchedPath {
        let files = { [folder.databasePath, folder.lockPath].map { FileIdentity(path: $0) } }
        let opened = files()
        return PathWatch.WatchedPath(name: "durable", path: folder.path) {
            files() == opened
        } recreatePath: {
            throw BrokerError(DurableFolder.removalNotice(folder.path))
        }
    }

    private func watchedSocket(_ name: String, _ port: StreamPort) -> PathWatch.WatchedPath {
        PathWatch.WatchedPath(name: name, path: options.runtimeFolder + "/" + name) {
            port.isInPlace
        } recreatePath: { [unowned self] in
            // The folder must be locked by this broker, and others must not be able to change it.
            guard lock.isInPlace(at: lockPath) else {
                throw BrokerError("the runtime folder is not locked by this broker")
            }
            let isMissing =
                try clientPort.permitsOtherUsers
                ? !PrivateFolder.existsOwned(options.runtimeFolder) : !PrivateFolder.existsClosed(options.runtimeFolder)
            if isMissing {
                throw BrokerError("the runtime folder is missing")
            }
            try port.recreateListener()
        }
    }
}
