internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// The broker's side of the folder of parts: the descriptions of the bodies that grow in its spool, by the names of their
/// files.
///
/// A thread writes these descriptions and keeps the bounds of the folder. Moves of bodies happen on the loop, in the order of
/// the core's actions: each is a rename(2) and a small file.
final class BodyParts {
    private enum Request: Sendable {
        case record(Growing)
        case forget(id: String)
        case sweep(limit: Int, seconds: Int)
        case replace(PartFolder)
    }

    /// Carries out the requests on the thread. A sweep waits for a second and for ten times the time of the last one, since
    /// each reads the whole folder.
    private final class Backend: StoreBackend {
        private var folder: PartFolder
        private let totals: Mailbox<PartFolder.Totals>
        private var sweep: (limit: Int, seconds: Int)?
        /// Seconds until the next sweep, unless the disk is full.
        private var pause = 0
        /// Bodies whose description the disk refused.
        private var refusedBodies: [String: Growing] = [:]

        init(_ folder: PartFolder, _ totals: Mailbox<PartFolder.Totals>) {
            self.folder = folder
            self.totals = totals
        }

        var isBehind: Bool { sweep != nil || !refusedBodies.isEmpty }

        func carryOut(_ requests: [Request]) {
            for request in requests {
                switch request {
                case .record(let body): record(body)
                case .forget(let id):
                    refusedBodies[id] = nil
                    folder.forget(id)
                case .replace(let folder): self.folder = folder
                // A sweep that makes room is not replaced by a regular one.
                case .sweep(let limit, let seconds): sweep = (min(limit, sweep?.limit ?? limit), seconds)
                }
            }
            guard requests.isEmpty else { return }
            for body in refusedBodies.values { record(body) }
            guard let sweep else { return }
            guard pause == 0 || sweep.limit == 0 else {
                pause -= 1
                return
            }
            self.sweep = nil
            let duration = ContinuousClock().measure {
                folder.removePrivateSpools()
                totals.put(folder.sweep(limit: sweep.limit, seconds: sweep.seconds))
            }
            pause = Int((duration * 10).components.seconds)
        }

        private func record(_ body: Growing) {
            let isRefused = body.head(in: folder).map { !folder.record($0, as: body.id) } ?? false
            refusedBodies[body.id] = isRefused ? body : nil
        }
    }

    /// Body in the spool. Its description is made where it is needed, usually on the thread.
    private struct Growing: Sendable {
        enum Source: Sendable {
            case transfer(PartKeys, PartDescription)
            /// Of a lent part: names and boot stay.
            case assigned(PartHead)
        }

        /// Name of the description.
        let id: String
        var path: String
        var source: Source

        var checkpoint: Checkpoint? {
            switch source {
            case .transfer(_, let part): part.checkpoint
            case .assigned(let head): head.part.checkpoint
            }
        }

        /// Nil if the body is not at its path.
        func head(in folder: PartFolder) -> PartHead? {
            switch source {
            case .transfer(let keys, let part): return folder.head(of: part, keys, at: path)
            case .assigned(var head):
                head.path = path
                return head
            }
        }
    }

    private var folder: PartFolder
    /// Path of the spool.
    private let spool: String
    private let thread: StoreThread<Backend>
    private let mailbox: Mailbox<PartFolder.Totals>
    private var growing: [String: Growing] = [:]
    private var bounds = (limit: 0, seconds: 0)
    /// Whether workers of an earlier broker may still have bodies.
    private var hasUnrecovered = true
    /// Latest totals of the folder.
    private(set) var totals = PartFolder.Totals()
    /// State of the folder at the last look.
    private var changes: Int?

    /// - Throws: `StoreError` or `SystemError`.
    init(_ path: String, spool: String) throws {
        let folder = try PartFolder(path)
        let mailbox = try Mailbox<PartFolder.Totals>()
        self.folder = folder
        self.mailbox = mailbox
        self.spool = spool
        thread = StoreThread("parts") { Backend(folder, mailbox) }
    }

    private func path(of file: String) -> String { "\(spool)/\(SpoolName.path(file))" }

    /// Readable when new totals are available.
    var descriptor: Int32 { mailbox.descriptor }

    /// Takes the totals that the thread has counted.
    func takeTotals() {
        if let latest = mailbox.takeAll().last { totals = latest }
    }

    func accepts(spool: String) -> Bool { folder.accepts(spool: spool) }

    /// Completes all writes.
    func finish() { thread.finish() }

    /// Whether the folder was removed.
    var isRemoved: Bool { folder.isRemoved }

    /// Whether the folder was removed, and the last attempt to create it failed.
    private(set) var isLost = false

    /// Creates the folder again, with the descriptions of the bodies that grow.
    ///
    /// - Throws: `StoreError`.
    func openAgain() throws(StoreError) {
        isLost = true
        folder = try PartFolder(folder.path)
        isLost = false
        thread.submit(.replace(folder))
        for body in growing.values { thread.submit(.record(body)) }
    }

    /// Whether the folder has a part now.
    var hasParts: Bool { folder.hasParts }

    /// Has the thread keep the bounds, if they or the folder have changed.
    ///
    /// - Returns: Whether this or another broker has changed the folder.
    func bound(bytes: Int, seconds: Int) -> Bool {
        let now = folder.changes
        let hasChanged = now != changes
        guard hasChanged || bounds != (bytes, seconds) else { return false }
        changes = now
        bounds = (bytes, seconds)
        // Other brokers may use the folder although this one does not.
        if bytes > 0 { thread.submit(.sweep(limit: bytes, seconds: seconds)) }
        return hasChanged
    }

    /// Removes all parts, because the disk is full.
    func makeRoom() { thread.submit(.sweep(limit: 0, seconds: bounds.seconds)) }

    // MARK: Bodies of this broker

    /// Stores the description of a body in the spool.
    func record(_ file: String, _ keys: PartKeys, _ part: PartDescription) {
        let known = growing[file]
        var part = part
        if part.checkpoint == nil { part.checkpoint = known?.checkpoint }
        let body = Growing(
            id: known?.id ?? file, path: known?.path ?? path(of: file), source: .transfer(keys, part))
        growing[file] = body
        thread.submit(.record(body))
    }

    /// Follows the rename of a body in the spool.
    func renamed(_ file: String, to other: String) {
        guard var body = growing.removeValue(forKey: file) else { return }
        body.path = path(of: other)
        growing[other] = body
        thread.submit(.record(body))
    }

    /// Forgets a body that has ended.
    func forget(_ file: String) {
        guard !growing.isEmpty, let entry = growing.removeValue(forKey: file) else { return }
        thread.submit(.forget(id: entry.id))
    }

    /// Moves a body out of the spool. One that the folder does not accept stays there, to be removed.
    ///
    /// - Returns: Whether it has moved.
    func store(_ file: String) -> Bool {
        guard let body = growing[file] else { return false }
        defer { forget(file) }
        return body.head(in: folder).map(folder.store) ?? false
    }

    /// Moves a part to the file of an attempt.
    func assign(_ keys: PartKeys, maxBytes: Int?, as file: String) -> PartFolder.AssignedPart? {
        guard let assigned = folder.assign(folder.names(of: keys), maxBytes: maxBytes, to: path(of: file), as: file)
        else {
            return nil
        }
        growing[file] = Growing(id: file, path: assigned.head.path, source: .assigned(assigned.head))
        return assigned
    }

    // MARK: Bodies of earlier brokers

    /// Moves the bodies that earlier brokers left out of the spools, as far as no worker has them.
    func recover() {
        guard hasUnrecovered else { return }
        let own = Set(growing.values.map(\.id))
        hasUnrecovered = folder.recover(spool: spool, except: own) > 0
    }
}
