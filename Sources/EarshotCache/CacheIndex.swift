internal import EarshotHTTP
internal import SQLite

/// Table of stored responses, and its statements. Used only on the cache's thread.
struct CacheIndex {
    /// Maximum number of variants per key: more than ordinary servers have, and few enough to scan.
    static let maximumVariantsPerKey = 8
    /// Maximum number of rows of any size, because the broker keeps their keys in memory.
    static let maximumRows = 1 << 20
    private static let schemaVersion = 5

    /// Connection, for transactions and for statements that only one caller needs.
    let database: Database

    /// Opens the index, and creates it if needed.
    init(_ path: String, isReadOnly: Bool = false) throws {
        database = try Database(path, busyMilliseconds: 2_000, isReadOnly: isReadOnly)
        try database.execute("PRAGMA cache_size = -8192")
        guard !isReadOnly else { return }
        try database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        if try database.firstInteger("PRAGMA user_version") != Self.schemaVersion {
            try database.execute("DROP TABLE IF EXISTS response; DROP TABLE IF EXISTS totals; \(Self.schema)")
            try database.execute("PRAGMA user_version = \(Self.schemaVersion)")
        }
        // Another connection may repair the log while this one is opened. Later ones only read, and block nothing.
        try database.execute("PRAGMA busy_timeout = 0")
    }

    /// `totals` has one row for each owner, because a sum over the responses takes long for very many.
    private static let schema = """
        CREATE TABLE totals (owner TEXT PRIMARY KEY, rows INTEGER NOT NULL, cost INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE response (
            entry INTEGER PRIMARY KEY,
            key BLOB NOT NULL,
            variant BLOB NOT NULL,
            url TEXT NOT NULL,
            private INTEGER NOT NULL,
            status INTEGER NOT NULL,
            fields BLOB NOT NULL,
            request_time INTEGER NOT NULL,
            response_time INTEGER NOT NULL,
            invalid INTEGER NOT NULL DEFAULT 0,
            length INTEGER NOT NULL,
            sha256 TEXT,
            body BLOB,
            owner TEXT NOT NULL,
            cost INTEGER NOT NULL,
            used INTEGER NOT NULL,
            UNIQUE (key, variant));
        CREATE INDEX response_used ON response (owner, used);
        CREATE INDEX response_sha256 ON response (sha256) WHERE body IS NULL AND length > 0;
        """

    // MARK: Reading

    /// Columns of a response as `makeItem` reads them, without and with its body.
    private static let itemColumns = """
        entry, key, variant, url, private, status, fields, request_time, response_time, invalid, length, sha256, owner
        """

    func items(forKey key: CacheDigest) throws -> [CacheItem] {
        let sql = "SELECT \(Self.itemColumns), body FROM response WHERE key = ?"
        return try database.mapRows(sql, [.bytes(key.bytes)]) { row in Self.makeItem(from: row) }
    }

    /// Calls `body` for each response, without its body: by owner, the most recently used first.
    func forEachItem(_ body: (CacheItem) throws -> Void) throws {
        let sql = "SELECT \(Self.itemColumns), NULL FROM response ORDER BY owner DESC, used DESC, url"
        try database.forEach(sql) { row in try body(Self.makeItem(from: row)) }
    }

    private static func makeItem(from row: borrowing Row) -> CacheItem {
        let variant = row.bytes(2) ?? []
        let response = StoredResponse(
            status: row.int(5), fields: HeaderFields(lines: row.bytes(6) ?? []), requestTime: row.int64(7),
            responseTime: row.int64(8), varyKey: VaryKey(canonicalFields: variant), isInvalidated: row.bool(9))
        return CacheItem(
            entry: UInt64(bitPattern: row.int64(0)), key: CacheDigest(bytes: row.bytes(1) ?? []),
            url: row.text(3) ?? "", isPrivate: row.bool(4), variant: variant, response: response,
            length: row.int(10), sha256: row.text(11), body: row.bytes(13), owner: row.text(12) ?? "")
    }

    /// Returns the body of a response, or the digest of its file; nil if there is no such response.
    func body(of entry: UInt64) throws -> (bytes: [UInt8]?, sha256: String?, length: Int)? {
        let sql = "SELECT body, sha256, length FROM response WHERE entry = ?"
        return try database.mapFirstRow(sql, [.entryID(entry)]) { row in (row.bytes(0), row.text(1), row.int(2)) }
    }

    /// Returns the digests and lengths of all body files.
    func bodyFiles() throws -> [(sha256: String, length: Int)] {
        try database.mapRows("SELECT DISTINCT sha256, length FROM response WHERE body IS NULL AND length > 0") { row in
            (row.text(0) ?? "", row.int(1))
        }
    }

    /// Returns whether a response has this body file.
    func hasResponse(withBodyFile sha256: String) throws -> Bool {
        try database.firstInteger(
            "SELECT 1 FROM response WHERE sha256 = ? AND body IS NULL AND length > 0 LIMIT 1", [.text(sha256)]) != nil
    }

    /// Returns whether a response is stored under the key.
    func hasResponse(forKey key: CacheDigest) throws -> Bool {
        try database.firstInteger("SELECT 1 FROM response WHERE key = ? LIMIT 1", [.bytes(key.bytes)]) != nil
    }

    /// Returns the totals as they were written last.
    func totals() throws -> CacheTotals {
        var totals = CacheTotals()
        try database.forEach("SELECT owner, rows, cost FROM totals") { row in
            totals.add(CacheTotals.Usage(rowCount: row.int(1), costBytes: row.int(2)), to: row.text(0) ?? "")
        }
        return totals
    }

    /// Returns the number of the latest use; 0 without rows. O(owners · log(rows)).
    func latestUseNumber() throws -> Int64 {
        let latest = "(SELECT max(used) FROM response WHERE response.owner = totals.owner)"
        return Int64(try database.firstInteger("SELECT max(\(latest)) FROM totals") ?? 0)
    }

    /// Returns the first keys after another one, in their order and each once.
    func keys(after key: [UInt8], limit: Int) throws -> [[UInt8]] {
        let sql = "SELECT DISTINCT key FROM response WHERE key > ? ORDER BY key LIMIT ?"
        return try database.mapRows(sql, [.bytes(key), .integer(limit)]) { row in row.bytes(0) ?? [] }
    }

    // MARK: Writing

    /// Inserts a response, unless another one has its identifier.
    /// - Returns: Whether it was inserted.
    func insert(_ item: CacheItem, useNumber: Int64) throws -> Bool {
        try database.run(
            """
            INSERT INTO response (\(Self.itemColumns), body, cost, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (entry) DO NOTHING
            """,
            [
                .entryID(item.entry), .bytes(item.key.bytes), .bytes(item.variant), .text(item.url),
                .integer(item.isPrivate), .integer(item.response.status), .bytes(item.response.fields.bytes),
                .integer(item.response.requestTime), .integer(item.response.responseTime),
                .integer(item.response.isInvalidated), .integer(item.length), .text(item.sha256), .text(item.owner),
                .bytes(item.body), .integer(item.costBytes), .integer(useNumber),
            ])
        return database.changedRowCount == 1
    }

    /// Updates a revalidated response. It replaces another response that has the same key and now the same variant.
    /// - Returns: the replaced response.
    func refresh(_ entry: UInt64, _ response: StoredResponse, variant: [UInt8]) throws -> [RemovedRow] {
        let assignments = "fields = ?, request_time = ?, response_time = ?, invalid = ?"
        let values: [Value] = [
            .bytes(response.fields.bytes), .integer(response.requestTime), .integer(response.responseTime),
            .integer(response.isInvalidated), .bytes(variant), .entryID(entry),
        ]
        // Nearly always the variant stays, and with it the row's place in the index of keys.
        try database.run("UPDATE response SET \(assignments) WHERE variant = ? AND entry = ?", values)
        guard database.changedRowCount == 0 else { return [] }
        let replaced = try removeRows(
            where: "key = (SELECT key FROM response WHERE entry = ?) AND variant = ?",
            [.entryID(entry), .bytes(variant)])
        try database.run("UPDATE response SET \(assignments), variant = ? WHERE entry = ?", values)
        return replaced
    }

    /// Writes the parts of totals that differ from the totals of the index.
    func writeTotals(_ totals: CacheTotals, changedFrom: CacheTotals) throws {
        for (owner, part) in totals.usageByOwner where changedFrom.usageByOwner[owner] != part {
            try database.run(
                "REPLACE INTO totals VALUES (?, ?, ?)",
                [.text(owner), .integer(part.rowCount), .integer(part.costBytes)])
        }
        for owner in changedFrom.usageByOwner.keys where totals.usageByOwner[owner] == nil {
            try database.run("DELETE FROM totals WHERE owner = ?", [.text(owner)])
        }
    }

    /// Marks the responses for the URL of a key, in all scopes.
    func invalidateResponses(forURLOf key: CacheDigest) throws {
        let (first, last) = key.keyRangeOfURL
        try database.run("UPDATE response SET invalid = 1 WHERE key BETWEEN ? AND ?", [.bytes(first), .bytes(last)])
    }

    func recordUse(of entry: UInt64, useNumber: Int64) throws {
        try database.run("UPDATE response SET used = ? WHERE entry = ?", [.integer(useNumber), .entryID(entry)])
    }

    /// A removed row.
    struct RemovedRow {
        var key: CacheDigest
        /// Digest of its body file; nil without one.
        var bodyFile: String?
        var owner: String
        var costBytes: Int
    }

    func removeResponse(entry: UInt64) throws -> [RemovedRow] { try removeRows(where: "entry = ?", [.entryID(entry)]) }

    /// Removes the least recently used response of an owner.
    func removeLeastRecentlyUsed(of owner: String) throws -> [RemovedRow] {
        try removeRows(
            where: "entry = (SELECT entry FROM response WHERE owner = ? ORDER BY used LIMIT 1)", [.text(owner)])
    }

    /// Removes the response of a key and a variant.
    func removeResponse(key: CacheDigest, variant: [UInt8]) throws -> [RemovedRow] {
        try removeRows(where: "key = ? AND variant = ?", [.bytes(key.bytes), .bytes(variant)])
    }

    /// Removes the least recently used responses of a key, so that there is room for one more variant.
    func makeRoomForVariant(of key: CacheDigest) throws -> [RemovedRow] {
        let surplus =
            "SELECT entry FROM response WHERE key = ? ORDER BY used DESC LIMIT -1 OFFSET \(Self.maximumVariantsPerKey - 1)"
        return try removeRows(where: "entry IN (\(surplus))", [.bytes(key.bytes)])
    }

    /// Removes the responses whose body file this is.
    func removeResponses(withBodyFile sha256: String) throws -> [RemovedRow] {
        try removeRows(where: "body IS NULL AND sha256 = ?", [.text(sha256)])
    }

    private func removeRows(where condition: String, _ values: [Value]) throws -> [RemovedRow] {
        let sql = """
            DELETE FROM response WHERE \(condition)
            RETURNING key, cost, iif(body IS NULL AND length > 0, sha256, NULL), owner
            """
        return try database.mapRows(sql, values) { row in
            RemovedRow(
                key: CacheDigest(bytes: row.bytes(0) ?? []), bodyFile: row.text(2), owner: row.text(3) ?? "",
                costBytes: row.int(1))
        }
    }
}

extension Value {
    /// Returns the value of an identifier.
    fileprivate static func entryID(_ entry: UInt64) -> Value { .integer(Int64(bitPattern: entry)) }
}

/// Number and size of the stored responses, in total and for each owner.
///
/// The owner of a response is the principal whose request stored it. The administrator is an owner like any other.
struct CacheTotals: Equatable {
    /// Number of responses, and their size as counted toward the limit in bytes.
    struct Usage: Equatable {
        var rowCount = 0
        var costBytes = 0

        static func &+ (left: Usage, right: Usage) -> Usage {
            Usage(rowCount: left.rowCount &+ right.rowCount, costBytes: left.costBytes &+ right.costBytes)
        }
    }

    private(set) var usageOfAllOwners = Usage()
    /// Parts of the owners that have responses.
    private(set) var usageByOwner: [String: Usage] = [:]

    /// Adds responses of an owner, or subtracts them if the numbers are negative. The sums wrap, because a damaged
    /// index may have any number.
    mutating func add(_ change: Usage, to owner: String) {
        usageOfAllOwners = usageOfAllOwners &+ change
        let part = (usageByOwner[owner] ?? Usage()) &+ change
        usageByOwner[owner] = part == Usage() ? nil : part
    }

    /// Removes an owner that turns out to have no rows.
    mutating func removeOwner(_ owner: String) {
        guard let part = usageByOwner[owner] else { return }
        add(Usage(rowCount: 0 &- part.rowCount, costBytes: 0 &- part.costBytes), to: owner)
    }

    /// Returns the owner with the largest part, and by how much it exceeds the second one; nil without owners.
    /// O(owners).
    func largestOwner(by size: KeyPath<Usage, Int>) -> (owner: String, lead: Int)? {
        var first: (owner: String, size: Int)?
        var second = 0
        for (owner, part) in usageByOwner {
            let size = part[keyPath: size]
            if size > first?.size ?? .min {
                second = max(0, first?.size ?? 0)
                first = (owner, size)
            } else {
                second = max(second, size)
            }
        }
        return first.map { ($0.owner, $0.size &- second) }
    }
}
