internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// The broker's side of the folder of parts: the descriptions of the bodies that grow in its spool, by the names of
/// their files.
///
/// A thread writes these descriptions and keeps the bounds of the folder. Moves of bodies happen on the loop, in the
/// order of the core's actions: each is a rename(2) and a small file.
final class BodyParts {
    private enum Request: Sendable {
        case recordDescription(GrowingBody)
        case removeDescription(id: String)
        case sweep(limitBytes: Int, maximumAgeSeconds: Int)
        case replaceFolder(PartFolder)
    }

    /// Carries out the requests on the thread. A sweep waits for a second and for ten times the time of the last one,
    /// since each reads the whole folder.
    private final class Backend: StoreBackend {
        private var folder: PartFolder
        private let totalsMailbox: Mailbox<PartFolder.Totals>
        private var pendingSweep: (limit: Int, seconds: Int)?
        /// Seconds until the next sweep, unless the disk is full.
        private var sweepPauseSeconds = 0
        /// Bodies whose description the disk refused.
        private var refusedBodies: [String: GrowingBody] = [:]

        init(folder: PartFolder, totalsMailbox totals: Mailbox<PartFolder.Totals>) {
            self.folder = folder
            self.totalsMailbox = totals
        }

        var hasPendingWork: Bool { pendingSweep != nil || !refusedBodies.isEmpty }

        func carryOut(_ requests: [Request]) {
            for request in requests {
                switch request {
                case .recordDescription(let body): recordDescription(of: body)
                case .removeDescription(let id):
                    refusedBodies[id] = nil
                    folder.removeHead(id: id)
                case .replaceFolder(let folder): self.folder = folder
                // A sweep that makes room is not replaced by a regular one.
                case .sweep(let limit, let seconds): pendingSweep = (min(limit, pendingSweep?.limit ?? limit), seconds)
                }
            }
            guard requests.isEmpty else { return }
            for body in refusedBodies.values { recordDescription(of: body) }
            guard let pendingSweep else { return }
            guard sweepPauseSeconds == 0 || pendingSweep.limit == 0 else {
                sweepPauseSeconds -= 1
                return
            }
            self.pendingSweep = nil
            let duration = ContinuousClock().measure {
                folder.removePrivateSpools()
                let totals = folder.enforceBounds(
                    maximumBytes: pendingSweep.limit, maximumAgeSeconds: pendingSweep.seconds)
                totalsMailbox.put(totals)
            }
            sweepPauseSeconds = Int((duration * 10).components.seconds)
        }

        private func recordDescription(of body: GrowingBody) {
            let isRefused = body.makeHead(in: folder).map { !folder.recordHead($0, as: body.descriptionID) } ?? false
            refusedBodies[body.descriptionID] = isRefused ? body : nil
        }
    }

    /// Body in the spool. Its description is made where it is needed, usually on the thread.
    private struct GrowingBody: Sendable {
        enum Source: Sendable {
            case newTransfer(PartKeys, PartDescription)
            /// Part that the folder assigned to an attempt. Its keys and boot stay.
            case resumedPart(PartHead)
        }

        /// Name of the description.
        let descriptionID: String
        var path: String
        var source: Source

        var checkpoint: Checkpoint? {
            switch source {
            case .newTransfer(_, let part): part.checkpoint
            case .resumedPart(let head): head.part.checkpoint
            }
        }

        /// Nil if the body is not at its path.
        func makeHead(in folder: PartFolder) -> PartHead? {
            switch source {
            case .newTransfer(let keys, let part): return folder.makeHead(of: part, keys: keys, at: path)
            case .resumedPart(var head):
                head.bodyPath = path
                return head
            }
        }
    }

    private var folder: PartFolder
    /// Path of the spool.
    private let spoolPath: String
    private let thread: StoreThread<Backend>
    private let totalsMailbox: Mailbox<PartFolder.Totals>
    private var growingBodies: [String: GrowingBody] = [:]
    private var sweepBounds = (limit: 0, seconds: 0)
    /// Whether workers of an earlier broker may still have bodies.
    private var mayHaveUnrecoveredBodies = true
    /// Latest totals of the folder.
    private(set) var folderTotals = PartFolder.Totals()
    /// State of the folder at the last look.
    private var lastChangeStamp: Int?

    /// - Throws: `StoreError` or `SystemError`.
    init(_ path: String, spool: String) throws {
        let folder = try PartFolder(path)
        let mailbox = try Mailbox<PartFolder.Totals>()
        self.folder = folder
        self.totalsMailbox = mailbox
        self.spoolPath = spool
        thread = StoreThread("parts") { Backend(folder: folder, totalsMailbox: mailbox) }
    }

    private func path(of file: String) -> String { "\(spoolPath)/\(SpoolName.relativePath(of: file))" }

    /// Readable when new totals are available.
    var totalsDescriptor: Int32 { totalsMailbox.descriptor }

    /// Takes the totals that the thread has counted.
    func takeTotals() {
        if let latest = totalsMailbox.takeAll().last { folderTotals = latest }
    }

    func sharesFileSystem(withSpool path: String) -> Bool { folder.sharesFileSystem(withSpool: path) }

    /// Completes all writes.
    func finish() { thread.finish() }

    /// Whether the folder was removed.
    var isFolderRemoved: Bool { folder.isRemoved }

    /// Whether the folder was removed, and the last attempt to create it failed.
    private(set) var isFolderLost = false

    /// Creates the folder again, with the descriptions of the bodies that grow.
    ///
    /// - Throws: `StoreError`.
    func recreateFolder() throws(StoreError) {
        isFolderLost = true
        folder = try PartFolder(folder.path)
        isFolderLost = false
        thread.submit(.replaceFolder(folder))
        for body in growingBodies.values { thread.submit(.recordDescription(body)) }
    }

    /// Whether the folder has a part now.
    var hasParts: Bool { folder.hasParts }

    /// Has the thread keep the bounds, if they or the folder have changed.
    ///
    /// - Returns: Whether this or another broker has changed the folder.
    func enforceBounds(maximumBytes: Int, maximumAgeSeconds: Int) -> Bool {
        let now = folder.changeStamp
        let hasChanged = now != lastChangeStamp
        guard hasChanged || sweepBounds != (maximumBytes, maximumAgeSeconds) else { return false }
        lastChangeStamp = now
        sweepBounds = (maximumBytes, maximumAgeSeconds)
        // Other brokers may use the folder although this one does not.
        if maximumBytes > 0 { thread.submit(.sweep(limitBytes: maximumBytes, maximumAgeSeconds: maximumAgeSeconds)) }
        return hasChanged
    }

    /// Removes all parts, because the disk is full.
    func removeAllParts() { thread.submit(.sweep(limitBytes: 0, maximumAgeSeconds: sweepBounds.seconds)) }

    // MARK: Bodies of this broker

    /// Stores the description of a body in the spool.
    func recordDescription(ofFile file: String, keys: PartKeys, part: PartDescription) {
        let known = growingBodies[file]
        var part = part
        if part.checkpoint == nil { part.checkpoint = known?.checkpoint }
        let body = GrowingBody(
            descriptionID: known?.descriptionID ?? file, path: known?.path ?? path(of: file),
            source: .newTransfer(keys, part))
        growingBodies[file] = body
        thread.submit(.recordDescription(body))
    }

    /// Follows the rename of a body in the spool.
    func fileRenamed(_ file: String, to other: String) {
        guard var body = growingBodies.removeValue(forKey: file) else { return }
        body.path = path(of: other)
        growingBodies[other] = body
        thread.submit(.recordDescription(body))
    }

    /// Forgets a body that has ended.
    func removeDescription(ofFile file: String) {
        guard !growingBodies.isEmpty, let entry = growingBodies.removeValue(forKey: file) else { return }
        thread.submit(.removeDescription(id: entry.descriptionID))
    }

    /// Moves a body out of the spool. One that the folder does not accept stays there, to be removed.
    ///
    /// - Returns: Whether it has moved.
    func storePart(fromSpoolFile file: String) -> Bool {
        guard let body = growingBodies[file] else { return false }
        defer { removeDescription(ofFile: file) }
        return body.makeHead(in: folder).map(folder.storePart) ?? false
    }

    /// Moves a part to the file of an attempt.
    func assignPart(matching keys: PartKeys, maximumBytes: Int?, toFile file: String) -> PartFolder.AssignedPart? {
        let names = folder.partNames(for: keys)
        guard let assigned = folder.assignPart(named: names, maximumBytes: maximumBytes, to: path(of: file), as: file)
        else { return nil }
        growingBodies[file] = GrowingBody(
            descriptionID: file, path: assigned.head.bodyPath, source: .resumedPart(assigned.head))
        return assigned
    }

    // MARK: Bodies of earlier brokers

    /// Moves the bodies that earlier brokers left out of the spools, as far as no worker has them.
    func recoverPartsFromSpools() {
        guard mayHaveUnrecoveredBodies else { return }
        let own = Set(growingBodies.values.map(\.descriptionID))
        mayHaveUnrecoveredBodies = folder.recoverBodies(fromSpool: spoolPath, except: own) > 0
    }
}
