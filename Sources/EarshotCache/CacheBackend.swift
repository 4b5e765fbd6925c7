internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc
internal import LibCrypto
internal import SQLite

/// Persistent store of the cache: keeps index and body files consistent, and within the limit.
///
/// Requests are executed at once, in a transaction that ends after 50 ms or 256 changed rows. Responses that a crash
/// loses are fetched again. Invalidated and discarded responses must not come back: they end the transaction at once,
/// and no lookup finds anything while the disk rejects them.
///
/// A file is created before the row that names it, and removed after it. A crash can therefore leave files without a
/// row, and a power failure also rows without a file. Both are removed when the index is opened, at the cost of listing
/// the files once. An unreadable index is moved aside and replaced.
final class CacheBackend: StoreBackend {
    /// Maximum time of a transaction.
    static let maximumTransactionMilliseconds = 50
    /// Number of changed rows that ends a transaction.
    private static let rowsPerTransaction = 256
    /// Maximum number of rows that a step of the eviction removes, before it looks for the largest owner again.
    private static let rowsPerEvictionStep = 16
    /// Maximum number of rejected invalidations that wait for the disk. One more empties the cache.
    private static let maximumPostponedRequests = 4_096
    /// Minimum interval between two reports of a failure, in seconds.
    private static let reportIntervalSeconds = 60
    /// Longest range of a file that becomes bytes in memory, like the bodies that workers send in a message.
    private static let maximumInlineBytes = 64 << 10

    /// Keys in one step of reading all keys. A step takes some 4 ms, in which lookups wait.
    private static let keysPerReadingStep = 2_048

    /// Reading of all keys after the start.
    private struct KeyReading {
        /// Suffixes of the keys up to `lastReadKey`, and of those stored since the start.
        var keySuffixes: Set<UInt64> = []
        /// The last key that was read; empty before the first.
        var lastReadKey: [UInt8] = []
    }

    /// Contents of the open transaction.
    private struct Transaction {
        /// Totals before it.
        var totalsBefore: CacheTotals
        /// Number of changed rows.
        var changedRowCount = 0
        /// Requests that must not be lost.
        var urgentRequests: [CacheRequest] = []
        /// Body files of its new rows.
        var newBodyFiles: [String] = []
        /// Body files of removed rows, which are removed after it.
        var releasedBodyFiles: [String] = []
    }

    private let folder: CacheFolder
    private let answers: Mailbox<CacheAnswer>
    private let bodies: BodyFolder?
    private let spoolPath: String
    /// Index; nil if it cannot be opened, in which case all lookups miss.
    private var index: CacheIndex?
    private var limitBytes: Int
    private var totals = CacheTotals()
    /// Nil once all keys are read and `indexOpened` was sent.
    private var keyReading: KeyReading?
    /// Logical clock of uses, for LRU eviction.
    private var latestUseNumber: Int64 = 0
    private var transaction: Transaction?
    /// Invalidations and discards that the disk rejected.
    private var postponedRequests: [CacheRequest] = []
    /// Time of the last report of a failure, in seconds since 1970.
    private var lastFaultReportTime = 0

    /// Whether a transaction is open, or rejected changes or the rest of the keys wait.
    var hasPendingWork: Bool { transaction != nil || index != nil && (!postponedRequests.isEmpty || keyReading != nil) }

    init(_ folder: CacheFolder, spool: String, limit: Int, _ answers: Mailbox<CacheAnswer>) {
        self.folder = folder
        self.limitBytes = limit
        self.answers = answers
        spoolPath = spool
        do throws(StoreError) {
            bodies = try BodyFolder(folder.bodiesPath)
        } catch {
            bodies = nil
            answers.put(.fault(.unavailable(error: error.description)))
            answers.put(.indexOpened([]))
            return
        }
        open()
    }

    // MARK: Opening

    private func open() {
        do {
            try loadIndex()
        } catch {
            replaceIndex(after: error)
        }
    }

    private func loadIndex() throws {
        let index = try CacheIndex(folder.databasePath)
        totals = try index.totals()
        latestUseNumber = try index.latestUseNumber()
        self.index = index
        keyReading = KeyReading()
        readNextKeys()
        evict()
        commit()
    }

    /// Reads some of the keys. After the last ones it sends `indexOpened`, and removes files without rows and rows
    /// without files.
    private func readNextKeys() {
        guard let last = keyReading?.lastReadKey else { return }
        guard let keys = runInTransaction({ try $0.keys(after: last, limit: Self.keysPerReadingStep) }) else { return }
        for key in keys { keyReading?.keySuffixes.insert(CacheDigest(bytes: key).suffix) }
        if let last = keys.last { keyReading?.lastReadKey = last }
        guard keys.count < Self.keysPerReadingStep, let suffixes = keyReading?.keySuffixes else { return }
        keyReading = nil
        answers.put(.indexOpened(suffixes))
        removeOrphanedFilesAndRows()
    }

    private func removeOrphanedFilesAndRows() {
        guard let files = try? bodies?.list() else { return }
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        var named: Set<String> = []
        let removed = runInTransaction { index in
            var removed: [CacheIndex.RemovedRow] = []
            for file in try index.bodyFiles() {
                guard lengths[file.sha256] != file.length else {
                    named.insert(file.sha256)
                    continue
                }
                removed += try index.removeResponses(withBodyFile: file.sha256)
            }
            return removed
        }
        guard let removed else { return }
        subtractRemovedRows(removed)
        for file in files where !named.contains(file.name) { bodies?.remove(file.name) }
    }

    /// Moves a corrupt index aside and creates a new one. If that fails, this process has no cache.
    private func replaceIndex(after error: any Error) {
        index = nil
        transaction = nil
        keyReading = nil
        guard (error as? DatabaseError)?.isCorruption == true else {
            answers.put(.fault(.unavailable(error: "\(error)")))
            answers.put(.indexOpened([]))
            answers.put(.indexEmptied)
            return
        }
        let quarantinePath = folder.databasePath + ".damaged"
        answers.put(.fault(.damaged(movedTo: quarantinePath)))
        _ = unsafe rename(folder.databasePath, quarantinePath)
        recreateIndex()
    }

    /// Creates an empty index. If that fails, this process has no cache.
    private func recreateIndex() {
        index = nil
        transaction = nil
        keyReading = nil
        postponedRequests = []
        for suffix in ["", "-wal", "-shm"] { unsafe unlink(folder.databasePath + suffix) }
        totals = CacheTotals()
        answers.put(.indexEmptied)
        do {
            try loadIndex()
        } catch {
            index = nil
            answers.put(.fault(.unavailable(error: "\(error)")))
            answers.put(.indexOpened([]))
        }
    }

    // MARK: Requests

    /// Executes requests. Without requests, ends the transaction, tries rejected changes again, and reads more keys.
    func carryOut(_ requests: [CacheRequest]) {
        if requests.isEmpty {
            carryOutPostponed()
            readNextKeys()
        }
        for request in requests {
            if case .lookUp = request, !postponedRequests.isEmpty { carryOutPostponed() }
            carryOut(request)
        }
        evict()
        guard let transaction else { return }
        let isFull = transaction.changedRowCount >= Self.rowsPerTransaction
        if requests.isEmpty || isFull || transaction.changedRowCount == 0 || !transaction.urgentRequests.isEmpty {
            commit()
        }
    }

    private func carryOut(_ request: CacheRequest) {
        switch request {
        case .lookUp(let ticket, let key):
            let items = postponedRequests.isEmpty ? runInTransaction { try $0.items(forKey: key) } : nil
            answers.put(.variantsFound(ticket: ticket, items?.filter(hasIntactBody) ?? []))
        case .read(let ticket, let entry, let range):
            answers.put(.body(ticket: ticket, readBody(of: entry, range: range)))
        case .store(let item, let file):
            let isKept = store(item, file)
            if let file { close(file) }
            answers.put(.stored(key: item.key, isKept: isKept))
        case .refresh(let entry, let response, let variant):
            let replaced = runInTransaction { try $0.refresh(entry, response, variant: variant) }
            countChangedRows()
            subtractRemovedRows(replaced ?? [])
        case .discard(let entry):
            let removed = runInTransaction { try $0.removeResponse(entry: entry) }
            finishUrgentRequest(request, removedRows: removed)
        case .invalidate(let keys):
            let isDone: Void? = runInTransaction { for key in keys { try $0.invalidateResponses(forURLOf: key) } }
            finishUrgentRequest(request, removedRows: isDone.map { [] })
        case .recordUses(let entries):
            runInTransaction { index in
                for entry in entries {
                    latestUseNumber += 1
                    try index.recordUse(of: entry, useNumber: latestUseNumber)
                }
            }
            countChangedRows(entries.count)
        case .setLimit(let bytes):
            limitBytes = bytes
            evict()
            // A command that empties the cache reads the index afterwards.
            commit()
        }
    }

    /// Runs `body` in the open transaction, or in a new one. After an error the transaction has no effect.
    @discardableResult
    private func runInTransaction<Result>(_ body: (CacheIndex) throws -> Result) -> Result? {
        guard let index else { return nil }
        do {
            if transaction == nil {
                try index.database.begin()
                transaction = Transaction(totalsBefore: totals)
            }
            return try body(index)
        } catch {
            rollBack(after: error)
            return nil
        }
    }

    private func countChangedRows(_ rows: Int = 1) { transaction?.changedRowCount += rows }

    private func commit() {
        guard transaction != nil, let index else { return }
        do {
            if let before = transaction?.totalsBefore, totals != before {
                try index.writeTotals(totals, changedFrom: before)
            }
            try index.database.commit()
        } catch {
            return rollBack(after: error)
        }
        let released = transaction?.releasedBodyFiles ?? []
        transaction = nil
        removeUnreferencedFiles(released)
    }

    /// Ends the transaction without effect. Replaces the index if it turns out to be corrupt.
    private func rollBack(after error: any Error) {
        if (error as? DatabaseError)?.isCorruption == true { return replaceIndex(after: error) }
        if time(nil) >= lastFaultReportTime + Self.reportIntervalSeconds {
            lastFaultReportTime = time(nil)
            answers.put(.fault(.diskOperationFailing(error: "\(error)")))
        }
        index?.database.rollBack()
        guard let transaction else { return }
        self.transaction = nil
        totals = transaction.totalsBefore
        removeUnreferencedFiles(transaction.newBodyFiles)
        postpone(transaction.urgentRequests)
    }

    // MARK: Urgent changes

    /// - Parameter removed: the rows that the request removed; nil if the disk rejected it.
    private func finishUrgentRequest(_ request: CacheRequest, removedRows removed: [CacheIndex.RemovedRow]?) {
        guard index != nil else { return }
        guard let removed else { return postpone([request]) }
        transaction?.urgentRequests.append(request)
        countChangedRows()
        subtractRemovedRows(removed)
    }

    private func postpone(_ requests: [CacheRequest]) {
        postponedRequests += requests
        if postponedRequests.count > Self.maximumPostponedRequests { recreateIndex() }
    }

    private func carryOutPostponed() {
        let requests = postponedRequests
        postponedRequests = []
        for request in requests { carryOut(request) }
        if !requests.isEmpty { commit() }
    }

    // MARK: Reading

    /// Returns whether the body in a row is unchanged since it was stored.
    private func hasIntactBody(_ item: CacheItem) -> Bool {
        guard let body = item.body, !body.isEmpty else { return true }
        return SHA256.digest(of: body.span).hex == item.sha256
    }

    private func readBody(of entry: UInt64, range: Range<Int>?) -> CacheBody {
        guard let row = runInTransaction({ try $0.body(of: entry) }), let row else { return .missing }
        guard let sha256 = row.sha256 else { return .missing }
        if let bytes = row.bytes {
            guard SHA256.digest(of: bytes.span).hex == sha256, let part = bytes.bytes(in: range) else {
                return .missing
            }
            return .bytes(part)
        }
        if let range { return readBodyFile(sha256, length: row.length, range: range) }
        guard let part = bodies?.linkOrCopyBody(sha256, length: row.length, toSpool: spoolPath, for: "cache") else {
            return .missing
        }
        return .spoolFile(name: part, sha256: sha256, length: row.length)
    }

    /// Returns a range of a body that is stored in a file: a short one as bytes, a long one as a file.
    private func readBodyFile(_ sha256: String, length: Int, range: Range<Int>) -> CacheBody {
        guard range.upperBound <= length, let bodies else { return .missing }
        if range.count <= Self.maximumInlineBytes {
            return bodies.readBytes(of: sha256, length: length, range: range).map(CacheBody.bytes) ?? .missing
        }
        guard let part = bodies.copyBodyRange(range, of: sha256, length: length, toSpool: spoolPath, for: "cache")
        else {
            return .missing
        }
        return .spoolFile(name: part.name, sha256: part.sha256, length: range.count)
    }

    // MARK: Writing

    /// Stores a response, and its body file if it has one.
    /// - Returns: whether it is stored.
    private func store(_ item: CacheItem, _ file: Int32?) -> Bool {
        guard index != nil else { return false }
        if let file, item.costBytes <= limitBytes {
            // Before the row: a stored body exists regardless of the success of its row.
            guard let sha256 = item.sha256, let bodies, bodies.storeFile(file, as: sha256) else { return false }
        }
        let removed = runInTransaction { index in
            // Most keys are new and have nothing to replace. This query costs a third of two unnecessary deletions.
            guard try index.hasResponse(forKey: item.key) else { return [] as [CacheIndex.RemovedRow] }
            let replaced = try index.removeResponse(key: item.key, variant: item.variant)
            return try item.costBytes <= limitBytes ? replaced + index.makeRoomForVariant(of: item.key) : replaced
        }
        let file = file == nil ? nil : item.sha256
        guard let removed else {
            removeUnreferencedFiles(file.map { [$0] } ?? [])
            return false
        }
        if let file { transaction?.newBodyFiles.append(file) }
        guard item.costBytes <= limitBytes else {
            subtractRemovedRows(removed)
            return false
        }
        latestUseNumber += 1
        let isKept = runInTransaction { try $0.insert(item, useNumber: latestUseNumber) } ?? false
        if isKept {
            totals.add(CacheTotals.Usage(rowCount: 1, costBytes: item.costBytes), to: item.owner)
            keyReading?.keySuffixes.insert(item.key.suffix)
        }
        countChangedRows()
        subtractRemovedRows(removed)
        return isKept
    }

    // MARK: Removing

    /// Subtracts removed rows from the totals, and releases their files.
    private func subtractRemovedRows(_ removed: [CacheIndex.RemovedRow]) {
        guard !removed.isEmpty, transaction != nil else { return }
        for row in removed { totals.add(CacheTotals.Usage(rowCount: -1, costBytes: -row.costBytes), to: row.owner) }
        countChangedRows(removed.count)
        transaction?.releasedBodyFiles += removed.compactMap(\.bodyFile)
        let gone = runInTransaction { index in
            try Set(removed.map(\.key)).filter { try !index.hasResponse(forKey: $0) }
        }
        guard let gone, !gone.isEmpty else { return }
        for key in gone { keyReading?.keySuffixes.remove(key.suffix) }
        answers.put(.keysRemoved(Array(gone)))
    }

    /// Removes those of the files that no row names any more. Those that cannot be looked up stay until the index
    /// is opened again.
    private func removeUnreferencedFiles(_ sums: [String]) {
        for sum in Set(sums) where (try? index?.hasResponse(withBodyFile: sum)) == false { bodies?.remove(sum) }
    }

    /// Removes the least recently used rows of the owner with the largest part, until the total is within the limit. So
    /// no owner removes those of a smaller one. O(owners + log(rows)) for each row.
    private func evict() {
        while totals.usageOfAllOwners.costBytes > limitBytes
            || totals.usageOfAllOwners.rowCount > CacheIndex.maximumRows
        {
            let isFull = totals.usageOfAllOwners.costBytes > limitBytes
            guard let heaviest = totals.largestOwner(by: isFull ? \.costBytes : \.rowCount) else { return }
            // A large excess is removed in larger steps, also if two owners are equal.
            let excess = isFull ? totals.usageOfAllOwners.costBytes - limitBytes : 0
            let stepBytes = min(excess, max(heaviest.lead, excess / 16))
            let removed = runInTransaction { index in
                var removed: [CacheIndex.RemovedRow] = []
                var sum = 0
                while removed.isEmpty || sum < stepBytes, removed.count < Self.rowsPerEvictionStep,
                    let row = try index.removeLeastRecentlyUsed(of: heaviest.owner).first
                {
                    removed.append(row)
                    sum += row.costBytes
                }
                return removed
            }
            guard let removed else { return }
            // Totals that do not match the rows would make this loop endless.
            if removed.isEmpty { totals.removeOwner(heaviest.owner) }
            subtractRemovedRows(removed)
            if let transaction, transaction.changedRowCount >= Self.rowsPerTransaction { commit() }
        }
    }
}
