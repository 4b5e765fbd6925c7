internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import Foundation
internal import GRDB
internal import Glibc
internal import LibCrypto

/// Persistent store of the cache: keeps index and body files consistent, and within the limit.
///
/// A file is created before the row that names it, and removed after it. A crash can therefore leave files without a
/// row, and a power failure also rows without a file. Both are removed when the index is opened, at the cost of listing
/// the files once. An unreadable index is moved aside and replaced.
final class CacheKeeper: StoreKeeper {
    /// Minimum interval between two reports of a failure, in seconds.
    private static let complaintSeconds = 60
    /// Longest range of a file that becomes bytes in memory, like the bodies that workers send in a message.
    private static let inlineBytes = 64 << 10

    private let folder: CacheFolder
    private let answers: Mailbox<CacheAnswer>
    private let bodies: BodyFolder?
    private let spoolPath: String
    /// Index; nil if it cannot be opened, in which case all lookups miss.
    private var index: CacheIndex?
    private var limit: Int
    /// Total size of all rows, as counted toward the limit.
    private var cost = 0
    private var rows = 0
    /// Logical clock of uses, for LRU eviction.
    private var turn: Int64 = 0
    /// Time of the last report of a failure, in seconds since 1970.
    private var complainedAt = 0

    init(_ folder: CacheFolder, spool: String, limit: Int, _ answers: Mailbox<CacheAnswer>) {
        self.folder = folder
        self.limit = limit
        self.answers = answers
        spoolPath = spool
        do throws(StoreError) {
            bodies = try BodyFolder(folder.bodies)
        } catch {
            bodies = nil
            answers.put(.trouble(.unavailable(error: error.description)))
        }
        open()
    }

    // MARK: Opening

    private func open() {
        guard bodies != nil else {
            answers.put(.opened([]))
            return
        }
        do {
            try load()
        } catch {
            begin(anewAfter: error)
        }
    }

    private func load() throws {
        let index = try CacheIndex(folder.database)
        let files = try bodies?.list() ?? []
        let lengths = Dictionary(files.map { ($0.name, $0.length) }) { first, _ in first }
        let keys = try index.write { db in
            let rows = try Row.fetchAll(
                db, sql: "SELECT DISTINCT sha256, length FROM response WHERE body IS NULL AND length > 0")
            for row in rows {
                let (sha256, length): (String, Int) = (row["sha256"], row["length"])
                if lengths[sha256] == length { continue }
                try db.execute(sql: "DELETE FROM response WHERE body IS NULL AND sha256 = ?", arguments: [sha256])
            }
            cost = try Int.fetchOne(db, sql: "SELECT sum(cost) FROM response") ?? 0
            self.rows = try Int.fetchOne(db, sql: "SELECT count(*) FROM response") ?? 0
            turn = try Int64.fetchOne(db, sql: "SELECT max(used) FROM response") ?? 0
            let keys = try Row.fetchCursor(db, sql: "SELECT key FROM response")
            var prefixes: Set<UInt64> = []
            while let row = try keys.next() {
                let key: Data = row["key"]
                prefixes.insert(CacheDigest(bytes: [UInt8](key)).prefix)
            }
            return prefixes
        }
        let named = try index.read(CacheIndex.files)
        for file in files where !named.contains(file.name) { bodies?.remove(file.name) }
        self.index = index
        answers.put(.opened(keys))
        try evict()
    }

    /// Moves a corrupt index aside and creates a new one. If that fails, this process has no cache.
    private func begin(anewAfter error: any Error) {
        index = nil
        guard DatabaseFault.isDamage(error) else {
            answers.put(.trouble(.unavailable(error: DatabaseFault.words(error))))
            answers.put(.opened([]))
            answers.put(.emptied)
            return
        }
        let aside = folder.database + ".damaged"
        answers.put(.trouble(.damaged(movedTo: aside)))
        _ = unsafe rename(folder.database, aside)
        for suffix in ["-wal", "-shm"] { unsafe unlink(folder.database + suffix) }
        cost = 0
        rows = 0
        answers.put(.emptied)
        do {
            try load()
        } catch {
            index = nil
            answers.put(.trouble(.unavailable(error: DatabaseFault.words(error))))
            answers.put(.opened([]))
        }
    }

    // MARK: Requests

    func carryOut(_ requests: [CacheRequest]) {
        var writes: [CacheRequest] = []
        for request in requests {
            switch request {
            case .lookUp(let ticket, let key):
                write(&writes)
                answers.put(.found(ticket: ticket, attempt { try $0.items(of: key) }?.filter(isIntact) ?? []))
            case .read(let ticket, let entry, let range):
                write(&writes)
                answers.put(.body(ticket: ticket, read(entry, range)))
            case .limit(let bytes):
                limit = bytes
                write(&writes)
                evictNow()
            case .store, .refresh, .discard, .invalidate, .used: writes.append(request)
            }
        }
        write(&writes)
    }

    /// Runs `body` with the index, if there is one. Replaces the index if it turns out to be corrupt.
    private func attempt<Value>(_ body: (CacheIndex) throws -> Value) -> Value? {
        guard let index else { return nil }
        do {
            return try body(index)
        } catch {
            if DatabaseFault.isDamage(error) {
                begin(anewAfter: error)
            } else if time(nil) >= complainedAt + Self.complaintSeconds {
                complainedAt = time(nil)
                answers.put(.trouble(.failing(error: DatabaseFault.words(error))))
            }
            return nil
        }
    }

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
        guard let part = bodies?.give(sha256, length: row.length, toSpool: spoolPath, for: "cache") else {
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
        guard let part = bodies.give(range, of: sha256, length: length, toSpool: spoolPath, for: "cache") else {
            return .missing
        }
        return .file(part: part.name, sha256: part.sha256, length: range.count)
    }

    // MARK: Writing

    private func write(_ requests: inout [CacheRequest]) {
        guard !requests.isEmpty else { return }
        defer { requests = [] }
        var kept: Set<UInt64> = []
        var removed: [CacheIndex.Removed] = []
        let isDone: Void? = attempt { index in
            // Before the transaction: a stored body exists regardless of the success of its row.
            let items = requests.filter(takeFile)
            try index.write { db in
                for request in items { try carryOut(request, db, &kept, &removed) }
            }
        }
        for case .store(let item, let file) in requests {
            if let file { close(file) }
            answers.put(.stored(key: item.key, isKept: isDone != nil && kept.contains(item.entry)))
        }
        guard isDone != nil else {
            removeFilesWithoutRow(requests.compactMap { if case .store(let item, _) = $0 { item.sha256 } else { nil } })
            return
        }
        for case .store(let item, _) in requests where kept.contains(item.entry) {
            cost += item.cost
            rows += 1
        }
        forget(removed)
        evictNow()
    }

    /// Returns whether a request can be executed. Stores the body file of a response.
    private func takeFile(_ request: CacheRequest) -> Bool {
        guard case .store(let item, let file?) = request else { return true }
        guard let sha256 = item.sha256, let bodies, item.cost <= limit else { return false }
        return bodies.take(file, as: sha256)
    }

    private func carryOut(
        _ request: CacheRequest, _ db: Database, _ kept: inout Set<UInt64>, _ removed: inout [CacheIndex.Removed]
    ) throws {
        switch request {
        case .store(let item, _):
            let key = Data(item.key.bytes)
            // Most keys are new and have nothing to replace. This query costs a third of two unnecessary deletions.
            let isKnown = try CacheIndex.has(key, db)
            if isKnown {
                removed += try CacheIndex.remove(db, where: "key = ? AND variant = ?", [key, Data(item.variant)])
            }
            guard item.cost <= limit else { return }
            if isKnown {
                removed += try CacheIndex.remove(
                    db,
                    where: """
                        entry IN (SELECT entry FROM response WHERE key = ? ORDER BY used DESC LIMIT -1 \
                        OFFSET \(CacheIndex.variants - 1))
                        """, [key])
            }
            turn += 1
            try CacheIndex.insert(item, db, turn: turn)
            kept.insert(item.entry)
        case .refresh(let entry, let response, let variant):
            try db.execute(
                sql: """
                    UPDATE OR REPLACE response SET fields = ?, asked = ?, answered = ?, invalid = ?, variant = ? WHERE entry = ?
                    """,
                arguments: [
                    Data(response.fields.bytes), response.requestTime, response.responseTime, response.isInvalidated,
                    Data(variant), Int64(entry),
                ])
        case .discard(let entry): removed += try CacheIndex.remove(db, where: "entry = ?", [Int64(entry)])
        case .invalidate(let urls):
            for url in urls { try db.execute(sql: "UPDATE response SET invalid = 1 WHERE url = ?", arguments: [url]) }
        case .used(let entries):
            let statement = try db.cachedStatement(sql: "UPDATE response SET used = ? WHERE entry = ?")
            for entry in entries {
                turn += 1
                try statement.execute(arguments: [turn, Int64(entry)])
            }
        case .lookUp, .read, .limit:
            preconditionFailure("a request that writes nothing is carried out as one that does")
        }
    }

    // MARK: Removing

    /// Subtracts removed rows from the totals, and removes the files that no row names any more.
    private func forget(_ removed: [CacheIndex.Removed]) {
        guard !removed.isEmpty else { return }
        for row in removed { cost -= row.cost }
        rows -= removed.count
        removeFilesWithoutRow(removed.compactMap(\.sha256))
        let keys = Set(removed.map(\.key))
        let gone = attempt { index in
            try index.read { db in
                try keys.filter { try !CacheIndex.has(Data($0.bytes), db) }
            }
        }
        if let gone, !gone.isEmpty { answers.put(.gone(Array(gone))) }
    }

    private func removeFilesWithoutRow(_ sums: [String]) {
        guard !sums.isEmpty else { return }
        let unnamed = attempt { index in
            try index.read { db in
                let statement = try db.cachedStatement(
                    sql: "SELECT 1 FROM response WHERE sha256 = ? AND body IS NULL AND length > 0 LIMIT 1")
                return try Set(sums).filter { try Int.fetchOne(statement, arguments: [$0]) == nil }
            }
        }
        for sum in unnamed ?? [] { bodies?.remove(sum) }
    }

    private func evictNow() { _ = attempt { _ in try evict() } }

    /// Removes the least recently used rows until the total is within the limit.
    private func evict() throws {
        while let index, cost > limit || rows > CacheIndex.rows {
            let excess = cost - limit
            let removed = try index.write { db in
                var entries: [Int64] = []
                var sum = 0
                let oldest = try Row.fetchCursor(db, sql: "SELECT entry, cost FROM response ORDER BY used LIMIT 256")
                while let row = try oldest.next(), entries.isEmpty || sum < excess {
                    entries.append(row["entry"])
                    let cost: Int = row["cost"]
                    sum += cost
                }
                var removed: [CacheIndex.Removed] = []
                for entry in entries { removed += try CacheIndex.remove(db, where: "entry = ?", [entry]) }
                return removed
            }
            // Totals that do not match the rows would make this loop endless.
            guard !removed.isEmpty else {
                cost = 0
                rows = 0
                return
            }
            forget(removed)
        }
    }
}
