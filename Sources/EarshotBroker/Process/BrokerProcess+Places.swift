internal import EarshotCore
internal import EarshotLoop

/// Definition of the places that the broker creates again after their removal.
extension BrokerProcess {
    private var lockPath: String { options.runtimeFolder + "/broker.lock" }

    /// Creates the watch over all places.
    func makePlaces() throws(SystemError) -> BrokerPlaces {
        let runtime = options.runtimeFolder
        let places = [
            BrokerPlaces.Place(name: "runtime", path: runtime) { [unowned self] in
                lock.isAt(lockPath)
            } makeAgain: { [unowned self] in
                try PrivateFolder.makeClosed(runtime)
                guard let lock = try LockFile.take(lockPath) else {
                    throw BrokerError("another broker runs in \(runtime)")
                }
                self.lock = lock
            },
            socketPlace("bus", bus), socketPlace("work", work),
            BrokerPlaces.Place(name: "spool", path: spool.path) { [unowned self] in
                spool.isInPlace
            } obstacle: { [unowned self] in
                spool.obstacle
            } makeAgain: { [unowned self] in
                try spool.openAgain()
                core.spoolReplaced()
            },
        ]
        return try BrokerPlaces(places, loop: loop, logger: logger) { [spool] watch in
            watch.watchEntries(of: runtime)
            watch.watchFile(spool.lockPath)
            watch.watchMoves(of: spool.path)
        } onChange: { [unowned self] in
            core.placeFaults = $0
        }
    }

    private func socketPlace(_ name: String, _ port: StreamPort) -> BrokerPlaces.Place {
        BrokerPlaces.Place(name: name, path: options.runtimeFolder + "/" + name) {
            port.isInPlace
        } makeAgain: { [unowned self] in
            // The folder must be locked by this broker and closed to others before it listens there.
            guard lock.isAt(lockPath) else { throw BrokerError("the runtime folder is not locked by this broker") }
            guard try PrivateFolder.isClosed(options.runtimeFolder) else {
                throw BrokerError("the runtime folder is missing")
            }
            try port.listenAgain()
        }
    }
}
