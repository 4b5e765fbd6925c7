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
    private var limitBytes = Int.max
    /// Total cost of all rows.
    private var totalCostBytes = 0
    /// Requests forgotten by the loop but still in the table, because the disk rejected the change.
    private var undeletedRequestIDs: [UInt64] = []

    /// Whether an acknowledged or removed request is still in the table, where the next broker would find it.
    var hasPendingWork: Bool { !undeletedRequestIDs.isEmpty }

    /// Time of the last report of a failure, in seconds since 1970.
    private var lastFaultReportTime = 0

    init(_ folder: DurableFolder, spool: String, _ answers: Mailbox<DurableAnswer>) {
        self.folder = folder
        spoolPath = spool
        self.answers = answers
        do throws(StoreError) {
            let files = try open()
            answers.put(.tableOpened(files: files, hasRows: totalCostBytes > 0))
        } catch {
            answers.put(.tableIncompatible(error.description))
        }
    }

    // MARK: Opening

    /// - Throws: `StoreError` of the kind `incompatible`. After other errors this process has no durable requests.
    private func open() throws(StoreError) -> Set<String> {
        do {
            bodies = try BodyFolder(folder.bodiesPath)
            return try loadTable()
        } catch let error as StoreError where error.kind == .incompatible {
            throw error
        } catch let error as DatabaseError where error.isCorruption {
            return replaceTable(after: error)
        } catch {
            return stopStoring(after: error)
        }
    }

    /// Opens the table.
    /// - Returns: the digests of all body files.
    private func loadTable() throws -> Set<String> {
        let table = try DurableTable(folder.databasePath)
        guard let bodies else { throw StoreError("there is no folder for bodies") }
        let files = try bodies.list()
        // Bodies without a table are results of a lost table.
        guard !table.isNew || files.isEmpty else {
            try moveToQuarantine(["bodies"])
            answers.put(.fault(.tableMissing(movedTo: quarantinePath)))
            return try loadTable()
        }
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        var named: Set<String> = []
        try table.transaction {
            for row in try table.requestsWithBodyFiles() {
                if lengths[row.sha256] == row.length {
                    named.insert(row.sha256)
                } else {
                    try table.reopen(row.id, acceptedAt: row.acceptedAt)
                }
            }
            totalCostBytes = try table.totalCostBytes()
        }
        for file in files where !named.contains(file.name) { bodies.remove(file.name) }
        self.table = table
        return named
    }

    /// Moves a corrupt table and its bodies aside, for recovery by an administrator, and creates a new one. If that
    /// fails, this process stores nothing.
    private func replaceTable(after error: any Error) -> Set<String> {
        totalCostBytes = 0
        do {
            // Bodies first: after a crash in between, a table without bodies is read again, but bodies without a table
            // are not.
            try moveToQuarantine(["bodies"] + DurableFolder.databaseFileNames)
            answers.put(.fault(.damaged(error: "\(error)", movedTo: quarantinePath)))
            return try loadTable()
        } catch {
            return stopStoring(after: error)
        }
    }

    /// Folder for data moved aside by this process, named by time and process ID.
    private lazy var quarantinePath = "\(folder.path)/damaged-\(CalendarTime.now())-\(getpid())"

    /// Moves files and folders of `folder` to `quarantinePath`, in which their names are unused.
    private func moveToQuarantine(_ names: [String]) throws {
        try PrivateFolder.createWithParents(quarantinePath)
        for name in names {
            guard unsafe rename("\(folder.path)/\(name)", "\(quarantinePath)/\(name)") != 0, errno != ENOENT else {
                continue
            }
            throw StoreError(
                "cannot move \(folder.path)/\(name) to \(quarantinePath): \(SystemError("rename", number: errno))")
        }
        try PrivateFolder.createWithParents(folder.bodiesPath)
        bodies = try BodyFolder(folder.bodiesPath)
    }

    private func stopStoring(after error: any Error) -> Set<String> {
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
                writeTransaction(&writes)
                answers.put(.rows(rows(after: id, principal)))
            case .read(let id):
                writeTransaction(&writes)
                answers.put(.resultRead(id: id, readResult(of: id)))
            case .setLimit(let bytes):
                writeTransaction(&writes)
                limitBytes = bytes
            case .store, .storeResult, .reopen, .deleteRequest: writes.append(request)
            }
        }
        writeTransaction(&writes)
    }

    private func reportFault(_ error: any Error) {
        guard time(nil) >= lastFaultReportTime + Self.reportIntervalSeconds else { return }
        lastFaultReportTime = time(nil)
        answers.put(.fault(.diskOperationFailing(error: "\(error)")))
    }

    /// Returns the next slice of rows; none after the last, and if they cannot be read.
    private func rows(after id: UInt64?, _ principal: String?) -> [DurableRow] {
        do {
            guard let table else { return [] }
            var next = id
            while true {
                let rows = try table.rows(after: next, principal: principal)
                let left = hasPendingWork ? rows.filter { !undeletedRequestIDs.contains($0.id) } : rows
                guard left.isEmpty, let last = rows.last else { return left }
                next = last.id
            }
        } catch {
            reportFault(error)
            return []
        }
    }

    private func readResult(of id: UInt64) -> DurableStoredResult? {
        do {
            guard let end = try table?.result(of: id) else { return nil }
            if let bytes = end.body { return DurableStoredResult(terminalHead: end.terminalHead, body: .bytes(bytes)) }
            guard let sha256 = end.sha256 else {
                return DurableStoredResult(terminalHead: end.terminalHead, body: .noBody)
            }
            guard let part = bodies?.linkOrCopyBody(sha256, length: end.bodyLength, toSpool: spoolPath, for: "durable")
            else {
                return nil
            }
            return DurableStoredResult(
                terminalHead: end.terminalHead, body: .spoolFile(name: part, sha256: sha256, length: end.bodyLength))
        } catch {
            reportFault(error)
            return nil
        }
    }

    // MARK: Writing

    /// Effects of a transaction outside the table, applied after its commit.
    private struct Changes {
        var answers: [DurableAnswer] = []
        var costBytes: Int
        /// Body files of deleted rows.
        var releasedBodyFiles: [String] = []
    }

    private func writeTransaction(_ requests: inout [DurableRequest]) {
        guard !requests.isEmpty || hasPendingWork else { return }
        let isBodyStored = storeBodyFiles(of: requests)
        do {
            guard let table else { throw StoreError("there is no table") }
            guard table.isInPlace else {
                throw StoreError(DurableFolder.removalNotice(folder.databasePath))
            }
            var changes = Changes(costBytes: totalCostBytes)
            try table.transaction {
                for id in undeletedRequestIDs { try deleteRequest(id, table, &changes) }
                for (index, request) in requests.enumerated() {
                    try carryOut(request, hasFile: isBodyStored[index], table, &changes)
                }
            }
            totalCostBytes = changes.costBytes
            undeletedRequestIDs = []
            removeUnreferencedFiles(changes.releasedBodyFiles)
            for answer in changes.answers { answers.put(answer) }
        } catch {
            if table != nil { reportFault(error) }
            refuseRequests(requests)
        }
        let digests: [String] = requests.compactMap { request in
            if case .storeResult(_, let end, _?) = request { end.sha256 } else { nil }
        }
        removeUnreferencedFiles(digests)
        requests = []
    }

    /// Stores the body files of requests and flushes them.
    /// - Returns: For each request, whether its body is stored; true without a body.
    private func storeBodyFiles(of requests: [DurableRequest]) -> [Bool] {
        var hasTaken = false
        var isStored = requests.map { request in
            guard case .storeResult(_, let end, let file?) = request else { return true }
            defer { close(file) }
            guard table != nil, let sha256 = end.sha256, end.bodyLength <= limitBytes else { return false }
            hasTaken = true
            return bodies?.storeFile(file, as: sha256, isFlushed: true) ?? false
        }
        if hasTaken, bodies?.flush() != true {
            for index in requests.indices {
                if case .storeResult(_, _, _?) = requests[index] { isStored[index] = false }
            }
        }
        return isStored
    }

    private func carryOut(
        _ request: DurableRequest, hasFile: Bool, _ table: DurableTable, _ changes: inout Changes
    ) throws {
        switch request {
        case .store(let id, let principal, let acceptedAt, let head):
            let cost = DurableTable.costBytes(ofHead: head)
            guard changes.costBytes + cost <= limitBytes else {
                changes.answers.append(.refused(id: id, isFull: true))
                return
            }
            try table.insert(id, principal: principal, acceptedAt: acceptedAt, head: head)
            changes.costBytes += cost
            changes.answers.append(.stored(id: id))
        case .storeResult(let id, let end, _):
            let more = end.terminalHead.count + end.bodyLength
            guard hasFile, try table.storedResult(of: id) != nil, changes.costBytes + more <= limitBytes else {
                changes.answers.append(.resultRecorded(id: id, isStored: false))
                return
            }
            try table.setResult(of: id, end)
            changes.costBytes += more
            changes.answers.append(.resultRecorded(id: id, isStored: true))
        case .reopen(let id, let acceptedAt): try reopenRequest(id, acceptedAt, table, &changes)
        case .deleteRequest(let id): try deleteRequest(id, table, &changes)
        case .rows, .read, .setLimit:
            preconditionFailure("a request that writes nothing is carried out as one that does")
        }
    }

    private func reopenRequest(
        _ id: UInt64, _ acceptedAt: Int64, _ table: DurableTable, _ changes: inout Changes
    ) throws {
        guard let held = try table.storedResult(of: id), let head = try table.reopen(id, acceptedAt: acceptedAt)
        else {
            changes.answers.append(.reopened(id: id, head: nil))
            return
        }
        changes.costBytes -= held.costBytes - (try table.storedResult(of: id)?.costBytes ?? 0)
        if let file = held.bodyFile { changes.releasedBodyFiles.append(file) }
        changes.answers.append(.reopened(id: id, head: head))
    }

    private func deleteRequest(_ id: UInt64, _ table: DurableTable, _ changes: inout Changes) throws {
        guard let held = try table.storedResult(of: id) else { return }
        try table.delete(id)
        changes.costBytes -= held.costBytes
        if let file = held.bodyFile { changes.releasedBodyFiles.append(file) }
    }

    /// Reports a failure of requests whose transaction was rolled back.
    private func refuseRequests(_ requests: [DurableRequest]) {
        for request in requests {
            switch request {
            case .store(let id, _, _, _): answers.put(.refused(id: id, isFull: false))
            case .storeResult(let id, _, _): answers.put(.resultRecorded(id: id, isStored: false))
            case .reopen(let id, _): answers.put(.reopened(id: id, head: nil))
            case .deleteRequest(let id): if table != nil { undeletedRequestIDs.append(id) }
            case .rows, .read, .setLimit: preconditionFailure("a request that writes nothing was to be written")
            }
        }
    }

    /// Removes those of the files that no row names.
    private func removeUnreferencedFiles(_ sums: [String]) {
        guard !sums.isEmpty, let table else { return }
        do {
            for sum in try Set(sums).filter({ try !table.hasRow(withBodyFile: $0) }) { bodies?.remove(sum) }
        } catch {
            reportFault(error)
        }
    }
}
