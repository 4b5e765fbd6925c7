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
        case record(PartHead, id: String)
        case forget(id: String)
        case sweep(limit: Int, seconds: Int)
    }

    /// Carries out the requests on the thread. Sweeps wait for a second, since each reads the whole folder.
    private final class Keeper: StoreKeeper {
        private let folder: PartFolder
        private let totals: Mailbox<PartFolder.Totals>
        private var sweep: (limit: Int, seconds: Int)?

        init(_ folder: PartFolder, _ totals: Mailbox<PartFolder.Totals>) {
            self.folder = folder
            self.totals = totals
        }

        var isBehind: Bool { sweep != nil }

        func carryOut(_ requests: [Request]) {
            for request in requests {
                switch request {
                case .record(let head, let id): folder.record(head, as: id)
                case .forget(let id): folder.forget(id)
                // A sweep that makes room is not replaced by a regular one.
                case .sweep(let limit, let seconds): sweep = (min(limit, sweep?.limit ?? limit), seconds)
                }
            }
            guard requests.isEmpty, let sweep else { return }
            self.sweep = nil
            folder.removePrivateSpools()
            totals.put(folder.sweep(limit: sweep.limit, seconds: sweep.seconds))
        }
    }

    private struct Growing {
        let id: String
        var head: PartHead
    }

    private let folder: PartFolder
    /// Path of the spool.
    private let spool: String
    private let thread: StoreThread<Keeper>
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
        thread = StoreThread("parts") { Keeper(folder, mailbox) }
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

    /// Whether the folder has no parts, as far as is known.
    var isEmpty: Bool { totals.parts == 0 && totals.changes != nil && totals.changes == folder.changes }

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
        if bytes > 0 { thread.ask(.sweep(limit: bytes, seconds: seconds)) }
        return hasChanged
    }

    /// Removes all parts, because the disk is full.
    func makeRoom() { thread.ask(.sweep(limit: 0, seconds: bounds.seconds)) }

    // MARK: Bodies of this broker

    /// Stores the description of a body in the spool.
    func record(_ file: String, _ keys: PartKeys, _ part: PartDescription) {
        guard var head = folder.head(of: part, keys, at: path(of: file)) else { return }
        let known = growing[file]
        if head.part.checkpoint == nil { head.part.checkpoint = known?.head.part.checkpoint }
        let id = known?.id ?? file
        growing[file] = Growing(id: id, head: head)
        thread.ask(.record(head, id: id))
    }

    /// Follows the rename of a body in the spool.
    func renamed(_ file: String, to other: String) {
        guard var entry = growing.removeValue(forKey: file) else { return }
        entry.head.path = path(of: other)
        growing[other] = entry
        thread.ask(.record(entry.head, id: entry.id))
    }

    /// Forgets a body that has ended.
    func forget(_ file: String) {
        guard !growing.isEmpty, let entry = growing.removeValue(forKey: file) else { return }
        thread.ask(.forget(id: entry.id))
    }

    /// Moves a body out of the spool. One that the folder does not accept stays there, to be removed.
    ///
    /// - Returns: Whether it has moved.
    func store(_ file: String) -> Bool {
        guard let entry = growing[file] else { return false }
        defer { forget(file) }
        return folder.store(entry.head)
    }

    /// Moves a part to the file of an attempt.
    func lend(_ keys: PartKeys, maxBytes: Int?, as file: String) -> PartFolder.Lent? {
        guard let lent = folder.lend(folder.names(of: keys), maxBytes: maxBytes, to: path(of: file), as: file) else {
            return nil
        }
        growing[file] = Growing(id: file, head: lent.head)
        return lent
    }

    // MARK: Bodies of earlier brokers

    /// Moves the bodies that earlier brokers left out of the spools, as far as no worker has them.
    func recover() {
        guard hasUnrecovered else { return }
        let own = Set(growing.values.map(\.id))
        hasUnrecovered = folder.recover(spool: spool, except: own) > 0
    }
}
