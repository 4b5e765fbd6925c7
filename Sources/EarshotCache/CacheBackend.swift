internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc
internal import LibCrypto
internal import SQLite

/// Persistent store of the cache: keeps index and body files consistent, and within the limit.
///
/// Requests are executed at once, in a transaction that ends after 50 ms or 256 changed rows. So what a crash loses is
/// fetched again. Invalidated and discarded responses must not come back: they end the transaction at once, and no
/// lookup finds anything while the disk rejects them.
///
/// A file is created before the row that names it, and removed after it. A crash can therefore leave files without a
/// row, and a power failure also rows without a file. Both are removed when the index is opened, at the cost of listing
/// the files once. An unreadable index is moved aside and replaced.
final class CacheBackend: StoreBackend {
    /// Maximum time of a transaction.
    static let transactionMilliseconds = 50
    /// Number of changed rows that ends a transaction.
    private static let transactionRows = 256
    /// Maximum number of rows that a step of the eviction removes, before it looks for the largest owner again.
    private static let evictedAtOnce = 16
    /// Maximum number of rejected invalidations that wait for the disk. One more empties the cache.
    private static let mostPostponed = 4_096
    /// Minimum interval between two reports of a failure, in seconds.
    private static let reportIntervalSeconds = 60
    /// Longest range of a file that becomes bytes in memory, like the bodies that workers send in a message.
    private static let inlineBytes = 64 << 10

    /// Keys in one step of reading all keys. A step takes some 4 ms, in which lookups wait.
    private static let keysAtOnce = 2_048

    /// Reading of all keys after the start.
    private struct KeyReading {
        /// Suffixes of the keys up to `lastKey`, and of those stored since the start.
        var suffixes: Set<UInt64> = []
        /// The last key that was read; empty before the first.
        var lastKey: [UInt8] = []
    }

    /// Contents of the open transaction.
    private struct Transaction {
        /// Totals before it.
        var totalsBefore: CacheTotals
        /// Number of changed rows.
        var changes = 0
        /// Requests that must not be lost.
        var urgent: [CacheRequest] = []
        /// Body files of its new rows.
        var files: [String] = []
        /// Body files of removed rows, which are removed after it.
        var released: [String] = []
    }

    private let folder: CacheFolder
    private let answers: Mailbox<CacheAnswer>
    private let bodies: BodyFolder?
    private let spoolPath: String
    /// Index; nil if it cannot be opened, in which case all lookups miss.
    private var index: CacheIndex?
    private var limit: Int
    private var totals = CacheTotals()
    /// Nil once all keys are read and `opened` was sent.
    private var reading: KeyReading?
    /// Logical clock of uses, for LRU eviction.
    private var turn: Int64 = 0
    private var transaction: Transaction?
    /// Invalidations and discards that the disk rejected.
    private var postponed: [CacheRequest] = []
    /// Time of the last report of a failure, in seconds since 1970.
    private var reportedAt = 0

    /// Whether a transaction is open, or rejected changes or the rest of the keys wait.
    var isBehind: Bool { transaction != nil || index != nil && (!postponed.isEmpty || reading != nil) }

    init(_ folder: CacheFolder, spool: String, limit: Int, _ answers: Mailbox<CacheAnswer>) {
        self.folder = folder
        self.limit = limit
        self.answers = answers
        spoolPath = spool
        do throws(StoreError) {
            bodies = try BodyFolder(folder.bodies)
        } catch {
            bodies = nil
            answers.put(.fault(.unavailable(error: error.description)))
            answers.put(.opened([]))
            return
        }
        open()
    }

    // MARK: Opening

    private func open() {
        do {
            try load()
        } catch {
            recover(from: error)
        }
    }

    private func load() throws {
        let index = try CacheIndex(folder.database)
        totals = try index.totals()
        turn = try index.latestTurn()
        self.index = index
        reading = KeyReading()
        readKeys()
        evict()
        commit()
    }

    /// Reads some of the keys. After the last ones it sends `opened`, and removes files without rows and rows without
    /// files.
    private func readKeys() {
        guard let last = reading?.lastKey else { return }
        guard let keys = attempt({ try $0.keys(after: last, limit: Self.keysAtOnce) }) else { return }
        for key in keys { reading?.suffixes.insert(CacheDigest(bytes: key).suffix) }
        if let last = keys.last { reading?.lastKey = last }
        guard keys.count < Self.keysAtOnce, let suffixes = reading?.suffixes else { return }
        reading = nil
        answers.put(.opened(suffixes))
        checkFiles()
    }

    private func checkFiles() {
        guard let files = try? bodies?.list() else { return }
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        var named: Set<String> = []
        let removed = attempt { index in
            var removed: [CacheIndex.Removed] = []
            for file in try index.files() {
                guard lengths[file.sha256] != file.length else {
                    named.insert(file.sha256)
                    continue
                }
                removed += try index.remove(file: file.sha256)
            }
            return removed
        }
        guard let removed else { return }
        forget(removed)
        for file in files where !named.contains(file.name) { bodies?.remove(file.name) }
    }

    /// Moves a corrupt index aside and creates a new one. If that fails, this process has no cache.
    private func recover(from error: any Error) {
        index = nil
        transaction = nil
        reading = nil
        guard (error as? DatabaseError)?.isDamage == true else {
            answers.put(.fault(.unavailable(error: "\(error)")))
            answers.put(.opened([]))
            answers.put(.emptied)
            return
        }
        let quarantinePath = folder.database + ".damaged"
        answers.put(.fault(.damaged(movedTo: quarantinePath)))
        _ = unsafe rename(folder.database, quarantinePath)
        recreateIndex()
    }

    /// Creates an empty index. If that fails, this process has no cache.
    private func recreateIndex() {
        index = nil
        transaction = nil
        reading = nil
        postponed = []
        for suffix in ["", "-wal", "-shm"] { unsafe unlink(folder.database + suffix) }
        totals = CacheTotals()
        answers.put(.emptied)
        do {
            try load()
        } catch {
            index = nil
            answers.put(.fault(.unavailable(error: "\(error)")))
            answers.put(.opened([]))
        }
    }

    // MARK: Requests

    /// Executes requests. Without requests, ends the transaction, tries rejected changes again, and reads more keys.
    func carryOut(_ requests: [CacheRequest]) {
        if requests.isEmpty {
            carryOutPostponed()
            readKeys()
        }
        for request in requests {
            if case .lookUp = request, !postponed.isEmpty { carryOutPostponed() }
            carryOut(request)
        }
        evict()
        guard let transaction else { return }
        let isFull = transaction.changes >= Self.transactionRows
        if requests.isEmpty || isFull || transaction.changes == 0 || !transaction.urgent.isEmpty { commit() }
    }

    private func carryOut(_ request: CacheRequest) {
        switch request {
        case .lookUp(let ticket, let key):
            let items = postponed.isEmpty ? attempt { try $0.items(of: key) } : nil
            answers.put(.found(ticket: ticket, items?.filter(isIntact) ?? []))
        case .read(let ticket, let entry, let range): answers.put(.body(ticket: ticket, read(entry, range)))
        case .store(let item, let file):
            let isKept = store(item, file)
            if let file { close(file) }
            answers.put(.stored(key: item.key, isKept: isKept))
        case .refresh(let entry, let response, let variant):
            let replaced = attempt { try $0.refresh(entry, response, variant: variant) }
            countChanges()
            forget(replaced ?? [])
        case .discard(let entry):
            let removed = attempt { try $0.remove(entry) }
            finishUrgent(request, removed)
        case .invalidate(let keys):
            let isDone: Void? = attempt { for key in keys { try $0.invalidate(key) } }
            finishUrgent(request, isDone.map { [] })
        case .used(let entries):
            attempt { index in
                for entry in entries {
                    turn += 1
                    try index.recordUse(entry, turn: turn)
                }
            }
            countChanges(entries.count)
        case .limit(let bytes):
            limit = bytes
            evict()
            // A command that empties the cache reads the index afterwards.
            commit()
        }
    }

    /// Runs `body` in the open transaction, or in a new one. After an error the transaction has no effect.
    @discardableResult
    private func attempt<Result>(_ body: (CacheIndex) throws -> Result) -> Result? {
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

    private func countChanges(_ rows: Int = 1) { transaction?.changes += rows }

    private func commit() {
        guard transaction != nil, let index else { return }
        do {
            if let before = transaction?.totalsBefore, totals != before { try index.set(totals, before: before) }
            try index.database.commit()
        } catch {
            return rollBack(after: error)
        }
        let released = transaction?.released ?? []
        transaction = nil
        removeUnnamed(released)
    }

    /// Ends the transaction without effect. Replaces the index if it turns out to be corrupt.
    private func rollBack(after error: any Error) {
        if (error as? DatabaseError)?.isDamage == true { return recover(from: error) }
        if time(nil) >= reportedAt + Self.reportIntervalSeconds {
            reportedAt = time(nil)
            answers.put(.fault(.failing(error: "\(error)")))
        }
        index?.database.rollBack()
        guard let transaction else { return }
        self.transaction = nil
        totals = transaction.totalsBefore
        removeUnnamed(transaction.files)
        postpone(transaction.urgent)
    }

    // MARK: Urgent changes

    /// - Parameter removed: the rows that the request removed; nil if the disk rejected it.
    private func finishUrgent(_ request: CacheRequest, _ removed: [CacheIndex.Removed]?) {
        guard index != nil else { return }
        guard let removed else { return postpone([request]) }
        transaction?.urgent.append(request)
        countChanges()
        forget(removed)
    }

    private func postpone(_ requests: [CacheRequest]) {
        postponed += requests
        if postponed.count > Self.mostPostponed { recreateIndex() }
    }

    private func carryOutPostponed() {
        let requests = postponed
        postponed = []
        for request in requests { carryOut(request) }
        if !requests.isEmpty { commit() }
    }

    // MARK: Reading

    /// Returns whether the body in a row is unchanged since it was stored.
    private func isIntact(_ item: CacheItem) -> Bool {
        guard let body = item.body, !body.isEmpty else { return true }
        return SHA256.digest(of: body.span).hex == item.sha256
    }

    private func read(_ entry: UInt64, _ range: Range<Int>?) -> CacheBody {
        guard let row = attempt({ try $0.body(of: entry) }), let row else { return .missing }
        guard let sha256 = row.sha256 else { return .missing }
        if let bytes = row.bytes {
            guard SHA256.digest(of: bytes.span).hex == sha256, let part = bytes.part(range) else { return .missing }
            return .bytes(part)
        }
        if let range { return readFile(sha256, length: row.length, range) }
        guard let part = bodies?.provide(sha256, length: row.length, toSpool: spoolPath, for: "cache") else {
            return .missing
        }
        return .file(part: part, sha256: sha256, length: row.length)
    }

    /// Returns a range of a body that is stored in a file: a short one as bytes, a long one as a file.
    private func readFile(_ sha256: String, length: Int, _ range: Range<Int>) -> CacheBody {
        guard range.upperBound <= length, let bodies else { return .missing }
        if range.count <= Self.inlineBytes {
            return bodies.bytes(sha256, length: length, range).map(CacheBody.bytes) ?? .missing
        }
        guard let part = bodies.provide(range, of: sha256, length: length, toSpool: spoolPath, for: "cache") else {
            return .missing
        }
        return .file(part: part.name, sha256: part.sha256, length: range.count)
    }

    // MARK: Writing

    /// Stores a response, and its body file if it has one.
    /// - Returns: whether it is stored.
    private func store(_ item: CacheItem, _ file: Int32?) -> Bool {
        guard index != nil else { return false }
        if let file, item.cost <= limit {
            // Before the row: a stored body exists regardless of the success of its row.
            guard let sha256 = item.sha256, let bodies, bodies.take(file, as: sha256) else { return false }
        }
        let removed = attempt { index in
            // Most keys are new and have nothing to replace. This query costs a third of two unnecessary deletions.
            guard try index.has(item.key) else { return [] as [CacheIndex.Removed] }
            let replaced = try index.remove(item.key, item.variant)
            return try item.cost <= limit ? replaced + index.makeRoom(for: item.key) : replaced
        }
        let file = file == nil ? nil : item.sha256
        guard let removed else {
            removeUnnamed(file.map { [$0] } ?? [])
            return false
        }
        if let file { transaction?.files.append(file) }
        guard item.cost <= limit else {
            forget(removed)
            return false
        }
        turn += 1
        let isKept = attempt { try $0.insert(item, turn: turn) } ?? false
        if isKept {
            totals.add(CacheTotals.Part(rows: 1, cost: item.cost), to: item.owner)
            reading?.suffixes.insert(item.key.suffix)
        }
        countChanges()
        forget(removed)
        return isKept
    }

    // MARK: Removing

    /// Subtracts removed rows from the totals, and releases their files.
    private func forget(_ removed: [CacheIndex.Removed]) {
        guard !removed.isEmpty, transaction != nil else { return }
        for row in removed { totals.add(CacheTotals.Part(rows: -1, cost: -row.cost), to: row.owner) }
        countChanges(removed.count)
        transaction?.released += removed.compactMap(\.file)
        let gone = attempt { index in try Set(removed.map(\.key)).filter { try !index.has($0) } }
        guard let gone, !gone.isEmpty else { return }
        for key in gone { reading?.suffixes.remove(key.suffix) }
        answers.put(.gone(Array(gone)))
    }

    /// Removes those of the given files that no row names any more. Those that cannot be looked up stay until the index
    /// is opened again.
    private func removeUnnamed(_ sums: [String]) {
        for sum in Set(sums) where (try? index?.names(sum)) == false { bodies?.remove(sum) }
    }

    /// Removes the least recently used rows of the owner with the largest part, until the total is within the limit. So
    /// no owner removes those of a smaller one. O(owners + log(rows)) for each row.
    private func evict() {
        while totals.all.cost > limit || totals.all.rows > CacheIndex.rows {
            let isFull = totals.all.cost > limit
            guard let heaviest = totals.largestOwner(by: isFull ? \.cost : \.rows) else { return }
            // A large excess is removed in larger steps, also if two owners are equal.
            let excess = isFull ? totals.all.cost - limit : 0
            let most = min(excess, max(heaviest.lead, excess / 16))
            let removed = attempt { index in
                var removed: [CacheIndex.Removed] = []
                var sum = 0
                while removed.isEmpty || sum < most, removed.count < Self.evictedAtOnce,
                    let row = try index.removeOldest(of: heaviest.owner).first
                {
                    removed.append(row)
                    sum += row.cost
                }
                return removed
            }
            guard let removed else { return }
            // Totals that do not match the rows would make this loop endless.
            if removed.isEmpty { totals.remove(heaviest.owner) }
            forget(removed)
            if let transaction, transaction.changes >= Self.transactionRows { commit() }
        }
    }
}
