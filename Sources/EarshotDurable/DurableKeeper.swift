internal import EarshotDisk
internal import EarshotLoop
internal import GRDB
internal import Glibc

/// What the thread of durable requests does: it keeps table and bodies together, within the limit.
///
/// What came together is one transaction and one flush of the disk. A body that is a file is there, and flushed, before
/// the row that names it, and goes after it. So after a crash there may be files without a row, which go when the table
/// is opened. A row whose file is missing or short all the same lets its request begin anew.
final class DurableKeeper: StoreKeeper {
    /// What a row takes besides what is in it.
    private static let rowBytes = 256
    /// A disk that fails is told of once in so many seconds.
    private static let complaintSeconds = 60

    private let folder: DurableFolder
    private let spoolPath: String
    private let answers: Mailbox<DurableAnswer>
    /// Nil when there is none to be had: then everything is refused.
    private var table: DurableTable?
    private var bodies: BodyFolder?
    private var limit = Int.max
    /// What all rows count for.
    private var cost = 0
    private var parts = 0
    /// Forgotten, and still in the table: the disk took no change.
    private var unforgotten: [UInt64] = []
    /// Seconds since 1970 at which it was told last that something failed.
    private var complainedAt = 0

    init(_ folder: DurableFolder, spool: String, _ answers: Mailbox<DurableAnswer>) {
        self.folder = folder
        spoolPath = spool
        self.answers = answers
        do throws(StoreError) {
            answers.put(.opened(try open()))
        } catch {
            answers.put(.foreign(error.description))
        }
    }

    // MARK: Opening

    /// - Throws: `StoreError` of the kind `foreign`; other errors leave this life without durable requests.
    private func open() throws(StoreError) -> [DurableRow] {
        do {
            bodies = try BodyFolder(folder.bodies)
            return try load()
        } catch let error as StoreError where error.kind == .foreign {
            throw error
        } catch  where DatabaseFault.isDamage(error) {
            return begin(anewAfter: error)
        } catch {
            return giveUp(after: error)
        }
    }

    private func load() throws -> [DurableRow] {
        let table = try DurableTable(folder.database)
        guard let bodies else { throw StoreError("there is no folder for bodies") }
        let files = try bodies.list()
        // Bodies without any table are results whose table was lost.
        guard !table.isNew || files.isEmpty else {
            try setAside(["bodies"])
            answers.put(
                .trouble("there are bodies of durable requests, but no table: they are kept in \(aside)"))
            return try load()
        }
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        let rows = try table.write { db in
            for row in try DurableTable.rows(db) {
                guard let file = row.file, lengths[file] != row.fileBytes else { continue }
                try DurableTable.reopen(db, id: row.id)
            }
            cost = try DurableTable.cost(db)
            return try DurableTable.rows(db)
        }
        let named = Set(rows.compactMap(\.file))
        for file in files where !named.contains(file.name) { bodies.remove(file.name) }
        self.table = table
        return rows
    }

    /// Moves a damaged table aside with the bodies that it named, for a person to look at. When that does not help,
    /// nothing is kept in this life.
    private func begin(anewAfter error: any Error) -> [DurableRow] {
        cost = 0
        do {
            // The bodies first: a table without bodies is read again at the next start, bodies without one are not.
            try setAside(["bodies"] + StoreFolder.files(of: "requests.sqlite"))
            answers.put(
                .trouble(
                    "the durable requests in \(folder.database) cannot be read (\(DatabaseFault.words(error))), and are"
                        + " begun anew; table and bodies are kept in \(aside)"))
            return try load()
        } catch {
            return giveUp(after: error)
        }
    }

    /// The folder for what this life moves aside, named by the time of its start.
    private lazy var aside = "\(folder.path)/damaged-\(CalendarTime.now())-\(getpid())"

    /// Moves files and folders of `folder` to `aside`, where nothing has their names yet.
    private func setAside(_ names: [String]) throws {
        try PrivateFolder.make(aside)
        for name in names {
            guard unsafe rename("\(folder.path)/\(name)", "\(aside)/\(name)") != 0, errno != ENOENT else { continue }
            throw StoreError("cannot move \(folder.path)/\(name) to \(aside): \(SystemError("rename", number: errno))")
        }
        try PrivateFolder.make(folder.bodies)
        bodies = try BodyFolder(folder.bodies)
    }

    private func giveUp(after error: any Error) -> [DurableRow] {
        table = nil
        answers.put(.trouble("no durable requests are kept in this life of the broker: \(DatabaseFault.words(error))"))
        return []
    }

    // MARK: Requests

    func carryOut(_ requests: [DurableRequest]) {
        var writes: [DurableRequest] = []
        for request in requests {
            switch request {
            case .read(let id):
                write(&writes)
                answers.put(.read(id: id, read(id)))
            case .limit(let bytes):
                write(&writes)
                limit = bytes
            case .store, .record, .forget: writes.append(request)
            }
        }
        write(&writes)
    }

    private func complain(_ error: any Error) {
        guard time(nil) >= complainedAt + Self.complaintSeconds else { return }
        complainedAt = time(nil)
        answers.put(.trouble("durable requests cannot be written or read: \(DatabaseFault.words(error))"))
    }

    private func read(_ id: UInt64) -> DurableReading? {
        do {
            guard let end = try table?.end(of: id) else { return nil }
            if let bytes = end.body { return DurableReading(head: end.head, body: .bytes(bytes)) }
            guard let sha256 = end.sha256 else { return DurableReading(head: end.head, body: .none) }
            // Each time: the broker makes a spool again that was removed.
            let spool = unsafe Glibc.open(spoolPath, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
            guard spool >= 0 else { return nil }
            defer { close(spool) }
            parts += 1
            // A name as workers give them: what nobody takes is swept when this process has gone.
            let part = "\(getpid())-durable.\(parts).part"
            guard bodies?.give(sha256, length: end.length, to: spool, as: part) == true else { return nil }
            return DurableReading(head: end.head, body: .file(part: part, sha256: sha256, length: end.length))
        } catch {
            complain(error)
            return nil
        }
    }

    // MARK: Writing

    /// What a transaction changes besides the table, if it comes to its end.
    private struct Changes {
        var answers: [DurableAnswer] = []
        var cost: Int
        /// Files that a row named.
        var released: [String] = []
    }

    private func write(_ requests: inout [DurableRequest]) {
        guard !requests.isEmpty else { return }
        let bodiesTaken = takeFiles(of: requests)
        do {
            guard let table else { throw StoreError("there is no table") }
            guard table.isInPlace else {
                throw StoreError("\(folder.database) was removed: restore it, or restart the broker to begin anew")
            }
            var changes = Changes(cost: cost)
            try table.write { db in
                for id in unforgotten { try forget(id, db, &changes) }
                for (index, request) in requests.enumerated() {
                    try carryOut(request, hasFile: bodiesTaken[index], db, &changes)
                }
            }
            cost = changes.cost
            unforgotten = []
            removeFiles(changes.released)
            for answer in changes.answers { answers.put(answer) }
        } catch {
            if table != nil { complain(error) }
            refuse(requests)
        }
        removeFiles(requests.compactMap { if case .record(_, let end, _?) = $0 { end.sha256 } else { nil } })
        requests = []
    }

    /// Takes the bodies that are files, for good.
    /// - Returns: for each request, whether its body is there if it has one.
    private func takeFiles(of requests: [DurableRequest]) -> [Bool] {
        var hasTaken = false
        var taken = requests.map { request in
            guard case .record(_, let end, let file?) = request else { return true }
            defer { close(file) }
            guard table != nil, let sha256 = end.sha256, end.length <= limit else { return false }
            hasTaken = true
            return bodies?.take(file, as: sha256, isForGood: true) ?? false
        }
        if hasTaken, bodies?.flush() != true {
            for index in requests.indices {
                if case .record(_, _, _?) = requests[index] { taken[index] = false }
            }
        }
        return taken
    }

    private func carryOut(
        _ request: DurableRequest, hasFile: Bool, _ db: Database, _ changes: inout Changes
    ) throws {
        switch request {
        case .store(let id, let acceptedAt, let head):
            let cost = head.count + Self.rowBytes
            guard changes.cost + cost <= limit else {
                changes.answers.append(.refused(id: id, isFull: true))
                return
            }
            try DurableTable.insert(db, id: id, acceptedAt: acceptedAt, head: head, cost: cost)
            changes.cost += cost
            changes.answers.append(.stored(id: id))
        case .record(let id, let end, _):
            let more = end.head.count + end.length
            guard hasFile, let held = try DurableTable.held(db, id: id), changes.cost + more <= limit else {
                changes.answers.append(.recorded(id: id, isStored: false))
                return
            }
            try DurableTable.update(db, id: id, end, cost: held.cost + more)
            changes.cost += more
            changes.answers.append(.recorded(id: id, isStored: true))
        case .forget(let id): try forget(id, db, &changes)
        case .read, .limit: preconditionFailure("a request that writes nothing is carried out as one that does")
        }
    }

    private func forget(_ id: UInt64, _ db: Database, _ changes: inout Changes) throws {
        guard let held = try DurableTable.held(db, id: id) else { return }
        try DurableTable.delete(db, id: id)
        changes.cost -= held.cost
        if let file = held.file { changes.released.append(file) }
    }

    /// Nothing of it was written.
    private func refuse(_ requests: [DurableRequest]) {
        for request in requests {
            switch request {
            case .store(let id, _, _): answers.put(.refused(id: id, isFull: false))
            case .record(let id, _, _): answers.put(.recorded(id: id, isStored: false))
            case .forget(let id): if table != nil { unforgotten.append(id) }
            case .read, .limit: preconditionFailure("a request that writes nothing was to be written")
            }
        }
    }

    /// Removes those of these files that no row names.
    private func removeFiles(_ sums: [String]) {
        guard !sums.isEmpty, let table else { return }
        do {
            let unnamed = try table.read { db in
                try Set(sums).filter { try !DurableTable.names(db, file: $0) }
            }
            for sum in unnamed { bodies?.remove(sum) }
        } catch {
            complain(error)
        }
    }
}
