internal import EarshotDisk
internal import EarshotLoop
internal import Glibc
internal import SQLite

/// Persistent store of durable requests: keeps table and body files consistent, and within the limit.
///
/// Requests that arrive together form one transaction with one flush. A body file is created and flushed before the row
/// that names it, and removed after it. A crash can therefore leave files without a row, which are removed when the
/// table is opened. A row with a missing or truncated file makes its request start again.
final class DurableBackend: StoreBackend {
    /// Minimum interval between two reports of a failure, in seconds.
    private static let reportIntervalSeconds = 60

    private let folder: DurableFolder
    private let spoolPath: String
    private let answers: Mailbox<DurableAnswer>
    /// Table; nil if it cannot be opened, in which case all requests are refused.
    private var table: DurableTable?
    private var bodies: BodyFolder?
    private var limit = Int.max
    /// Total cost of all rows.
    private var cost = 0
    /// Requests forgotten by the loop but still in the table, because the disk rejected the change.
    private var unforgotten: [UInt64] = []

    /// Whether an acknowledged or removed request is still in the table, where the next broker would find it.
    var isBehind: Bool { !unforgotten.isEmpty }

    /// Time of the last report of a failure, in seconds since 1970.
    private var reportedAt = 0

    init(_ folder: DurableFolder, spool: String, _ answers: Mailbox<DurableAnswer>) {
        self.folder = folder
        spoolPath = spool
        self.answers = answers
        do throws(StoreError) {
            let files = try open()
            answers.put(.opened(files: files, hasRows: cost > 0))
        } catch {
            answers.put(.foreign(error.description))
        }
    }

    // MARK: Opening

    /// - Throws: `StoreError` of the kind `foreign`. After other errors this process has no durable requests.
    private func open() throws(StoreError) -> Set<String> {
        do {
            bodies = try BodyFolder(folder.bodies)
            return try load()
        } catch let error as StoreError where error.kind == .foreign {
            throw error
        } catch let error as DatabaseError where error.isDamage {
            return begin(resetAfter: error)
        } catch {
            return abandon(after: error)
        }
    }

    /// Opens the table.
    /// - Returns: the digests of all body files.
    private func load() throws -> Set<String> {
        let table = try DurableTable(folder.database)
        guard let bodies else { throw StoreError("there is no folder for bodies") }
        let files = try bodies.list()
        // Bodies without a table are results of a lost table.
        guard !table.isNew || files.isEmpty else {
            try quarantine(["bodies"])
            answers.put(.fault(.tableMissing(movedTo: quarantinePath)))
            return try load()
        }
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        var named: Set<String> = []
        try table.transaction {
            for row in try table.files() {
                if lengths[row.sha256] == row.length {
                    named.insert(row.sha256)
                } else {
                    try table.reopen(row.id, acceptedAt: row.acceptedAt)
                }
            }
            cost = try table.cost()
        }
        for file in files where !named.contains(file.name) { bodies.remove(file.name) }
        self.table = table
        return named
    }

    /// Moves a corrupt table and its bodies aside, for recovery by an administrator, and creates a new one. If that
    /// fails, this process stores nothing.
    private func begin(resetAfter error: any Error) -> Set<String> {
        cost = 0
        do {
            // Bodies first: after a crash in between, a table without bodies is read again, but bodies without a table
            // are not.
            try quarantine(["bodies"] + DurableFolder.databaseFiles)
            answers.put(.fault(.damaged(error: "\(error)", movedTo: quarantinePath)))
            return try load()
        } catch {
            return abandon(after: error)
        }
    }

    /// Folder for data moved aside by this process, named by time and process ID.
    private lazy var quarantinePath = "\(folder.path)/damaged-\(CalendarTime.now())-\(getpid())"

    /// Moves files and folders of `folder` to `quarantinePath`, in which their names are unused.
    private func quarantine(_ names: [String]) throws {
        try PrivateFolder.make(quarantinePath)
        for name in names {
            guard unsafe rename("\(folder.path)/\(name)", "\(quarantinePath)/\(name)") != 0, errno != ENOENT else {
                continue
            }
            throw StoreError(
                "cannot move \(folder.path)/\(name) to \(quarantinePath): \(SystemError("rename", number: errno))")
        }
        try PrivateFolder.make(folder.bodies)
        bodies = try BodyFolder(folder.bodies)
    }

    private func abandon(after error: any Error) -> Set<String> {
        table = nil
        answers.put(.fault(.unavailable(error: "\(error)")))
        return []
    }

    // MARK: Requests

    func carryOut(_ requests: [DurableRequest]) {
        var writes: [DurableRequest] = []
        for request in requests {
            switch request {
            case .rows(let id, let principal):
                write(&writes)
                answers.put(.rows(rows(after: id, principal)))
            case .read(let id):
                write(&writes)
                answers.put(.read(id: id, read(id)))
            case .limit(let bytes):
                write(&writes)
                limit = bytes
            case .store, .record, .reopen, .forget: writes.append(request)
            }
        }
        write(&writes)
    }

    private func reportFault(_ error: any Error) {
        guard time(nil) >= reportedAt + Self.reportIntervalSeconds else { return }
        reportedAt = time(nil)
        answers.put(.fault(.failing(error: "\(error)")))
    }

    /// Returns the next slice of rows; none after the last, and if they cannot be read.
    private func rows(after id: UInt64?, _ principal: String?) -> [DurableRow] {
        do {
            guard let table else { return [] }
            var next = id
            while true {
                let rows = try table.rows(after: next, principal: principal)
                let left = isBehind ? rows.filter { !unforgotten.contains($0.id) } : rows
                guard left.isEmpty, let last = rows.last else { return left }
                next = last.id
            }
        } catch {
            reportFault(error)
            return []
        }
    }

    private func read(_ id: UInt64) -> DurableReading? {
        do {
            guard let end = try table?.end(of: id) else { return nil }
            if let bytes = end.body { return DurableReading(head: end.head, body: .bytes(bytes)) }
            guard let sha256 = end.sha256 else { return DurableReading(head: end.head, body: .none) }
            guard let part = bodies?.provide(sha256, length: end.length, toSpool: spoolPath, for: "durable") else {
                return nil
            }
            return DurableReading(head: end.head, body: .file(part: part, sha256: sha256, length: end.length))
        } catch {
            reportFault(error)
            return nil
        }
    }

    // MARK: Writing

    /// Effects of a transaction outside the table, applied after its commit.
    private struct Changes {
        var answers: [DurableAnswer] = []
        var cost: Int
        /// Body files of deleted rows.
        var released: [String] = []
    }

    private func write(_ requests: inout [DurableRequest]) {
        guard !requests.isEmpty || isBehind else { return }
        let bodiesTaken = storeBodyFiles(of: requests)
        do {
            guard let table else { throw StoreError("there is no table") }
            guard table.isInPlace else {
                throw StoreError(DurableFolder.removalNotice(folder.database))
            }
            var changes = Changes(cost: cost)
            try table.transaction {
                for id in unforgotten { try forget(id, table, &changes) }
                for (index, request) in requests.enumerated() {
                    try carryOut(request, hasFile: bodiesTaken[index], table, &changes)
                }
            }
            cost = changes.cost
            unforgotten = []
            removeFiles(changes.released)
            for answer in changes.answers { answers.put(answer) }
        } catch {
            if table != nil { reportFault(error) }
            refuse(requests)
        }
        removeFiles(requests.compactMap { if case .record(_, let end, _?) = $0 { end.sha256 } else { nil } })
        requests = []
    }

    /// Stores the body files of requests and flushes them.
    /// - Returns: For each request, whether its body is stored; true without a body.
    private func storeBodyFiles(of requests: [DurableRequest]) -> [Bool] {
        var hasTaken = false
        var isStored = requests.map { request in
            guard case .record(_, let end, let file?) = request else { return true }
            defer { close(file) }
            guard table != nil, let sha256 = end.sha256, end.length <= limit else { return false }
            hasTaken = true
            return bodies?.take(file, as: sha256, isForGood: true) ?? false
        }
        if hasTaken, bodies?.flush() != true {
            for index in requests.indices {
                if case .record(_, _, _?) = requests[index] { isStored[index] = false }
            }
        }
        return isStored
    }

    private func carryOut(
        _ request: DurableRequest, hasFile: Bool, _ table: DurableTable, _ changes: inout Changes
    ) throws {
        switch request {
        case .store(let id, let principal, let acceptedAt, let head):
            let cost = DurableTable.cost(ofHead: head)
            guard changes.cost + cost <= limit else {
                changes.answers.append(.refused(id: id, isFull: true))
                return
            }
            try table.insert(id, principal: principal, acceptedAt: acceptedAt, head: head)
            changes.cost += cost
            changes.answers.append(.stored(id: id))
        case .record(let id, let end, _):
            let more = end.head.count + end.length
            guard hasFile, try table.storedResult(id) != nil, changes.cost + more <= limit else {
                changes.answers.append(.recorded(id: id, isStored: false))
                return
            }
            try table.update(id, end)
            changes.cost += more
            changes.answers.append(.recorded(id: id, isStored: true))
        case .reopen(let id, let acceptedAt): try reopen(id, acceptedAt, table, &changes)
        case .forget(let id): try forget(id, table, &changes)
        case .rows, .read, .limit: preconditionFailure("a request that writes nothing is carried out as one that does")
        }
    }

    private func reopen(_ id: UInt64, _ acceptedAt: Int64, _ table: DurableTable, _ changes: inout Changes) throws {
        guard let held = try table.storedResult(id), let head = try table.reopen(id, acceptedAt: acceptedAt)
        else {
            changes.answers.append(.reopened(id: id, head: nil))
            return
        }
        changes.cost -= held.cost - (try table.storedResult(id)?.cost ?? 0)
        if let file = held.file { changes.released.append(file) }
        changes.answers.append(.reopened(id: id, head: head))
    }

    private func forget(_ id: UInt64, _ table: DurableTable, _ changes: inout Changes) throws {
        guard let held = try table.storedResult(id) else { return }
        try table.delete(id)
        changes.cost -= held.cost
        if let file = held.file { changes.released.append(file) }
    }

    /// Reports a failure of requests whose transaction was rolled back.
    private func refuse(_ requests: [DurableRequest]) {
        for request in requests {
            switch request {
            case .store(let id, _, _, _): answers.put(.refused(id: id, isFull: false))
            case .record(let id, _, _): answers.put(.recorded(id: id, isStored: false))
            case .reopen(let id, _): answers.put(.reopened(id: id, head: nil))
            case .forget(let id): if table != nil { unforgotten.append(id) }
            case .rows, .read, .limit: preconditionFailure("a request that writes nothing was to be written")
            }
        }
    }

    /// Removes those of the given files that no row names.
    private func removeFiles(_ sums: [String]) {
        guard !sums.isEmpty, let table else { return }
        do {
            for sum in try Set(sums).filter({ try !table.names($0) }) { bodies?.remove(sum) }
        } catch {
            reportFault(error)
        }
    }
}
