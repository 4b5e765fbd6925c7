internal import EarshotHTTP
internal import SQLite

/// Table of stored responses, and its statements. Used only on the cache's thread.
struct CacheIndex {
    /// Maximum number of variants per key: more than ordinary servers have, and few enough to scan.
    static let variants = 8
    /// Maximum number of rows of any size, because the broker keeps their keys in memory.
    static let rows = 1 << 20
    private static let version = 4

    /// Connection, for transactions and for statements that only one caller needs.
    let database: Database

    /// Opens the index, and creates it if needed.
    init(_ path: String, isReadOnly: Bool = false) throws {
        database = try Database(path, busyMilliseconds: 2_000, isReadOnly: isReadOnly)
        try database.execute("PRAGMA cache_size = -8192")
        guard !isReadOnly else { return }
        try database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        if try database.integer("PRAGMA user_version") != Self.version {
            try database.execute("DROP TABLE IF EXISTS response; DROP TABLE IF EXISTS totals; \(Self.schema)")
            try database.execute("PRAGMA user_version = \(Self.version)")
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
            asked INTEGER NOT NULL,
            answered INTEGER NOT NULL,
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

    /// Columns of a response as `item` reads them, without and with its body.
    private static let columns = """
        entry, key, variant, url, private, status, fields, asked, answered, invalid, length, sha256, owner
        """

    func items(of key: CacheDigest) throws -> [CacheItem] {
        try database.all("SELECT \(Self.columns), body FROM response WHERE key = ?", [.bytes(key.bytes)]) { row in
            Self.item(row)
        }
    }

    /// Calls `body` for each response, without its body: by owner, the most recently used first.
    func forEachItem(_ body: (CacheItem) throws -> Void) throws {
        try database.forEach("SELECT \(Self.columns), NULL FROM response ORDER BY owner DESC, used DESC, url") { row in
            try body(Self.item(row))
        }
    }

    private static func item(_ row: borrowing Row) -> CacheItem {
        let variant = row.bytes(2) ?? []
        let response = StoredResponse(
            status: row.number(5), fields: HeaderFields(lines: row.bytes(6) ?? []), requestTime: row.integer(7),
            responseTime: row.integer(8), varyKey: VaryKey(canonical: variant), isInvalidated: row.flag(9))
        return CacheItem(
            entry: UInt64(bitPattern: row.integer(0)), key: CacheDigest(bytes: row.bytes(1) ?? []),
            url: row.text(3) ?? "", isPrivate: row.flag(4), variant: variant, response: response,
            length: row.number(10), sha256: row.text(11), body: row.bytes(13),
            owner: row.text(12) ?? "")
    }

    /// Returns the body of a response, or the digest of its file; nil if there is no such response.
    func body(of entry: UInt64) throws -> (bytes: [UInt8]?, sha256: String?, length: Int)? {
        try database.first("SELECT body, sha256, length FROM response WHERE entry = ?", [.entry(entry)]) { row in
            (row.bytes(0), row.text(1), row.number(2))
        }
    }

    /// Returns the digests and lengths of all body files.
    func files() throws -> [(sha256: String, length: Int)] {
        try database.all("SELECT DISTINCT sha256, length FROM response WHERE body IS NULL AND length > 0") { row in
            (row.text(0) ?? "", row.number(1))
        }
    }

    /// Returns whether a response has this body file.
    func names(_ sha256: String) throws -> Bool {
        try database.integer(
            "SELECT 1 FROM response WHERE sha256 = ? AND body IS NULL AND length > 0 LIMIT 1", [.text(sha256)]) != nil
    }

    /// Returns whether a response is stored under the key.
    func has(_ key: CacheDigest) throws -> Bool {
        try database.integer("SELECT 1 FROM response WHERE key = ? LIMIT 1", [.bytes(key.bytes)]) != nil
    }

    /// Returns the totals as they were written last.
    func totals() throws -> CacheTotals {
        var totals = CacheTotals()
        try database.forEach("SELECT owner, rows, cost FROM totals") { row in
            totals.add(CacheTotals.Part(rows: row.number(1), cost: row.number(2)), to: row.text(0) ?? "")
        }
        return totals
    }

    /// Returns the turn of the latest use; 0 without rows. O(owners · log(rows)).
    func latestTurn() throws -> Int64 {
        let latest = "(SELECT max(used) FROM response WHERE response.owner = totals.owner)"
        return Int64(try database.integer("SELECT max(\(latest)) FROM totals") ?? 0)
    }

    /// Returns the first keys after another one, in their order and each once.
    func keys(after key: [UInt8], limit: Int) throws -> [[UInt8]] {
        let sql = "SELECT DISTINCT key FROM response WHERE key > ? ORDER BY key LIMIT ?"
        return try database.all(sql, [.bytes(key), .integer(limit)]) { row in row.bytes(0) ?? [] }
    }

    // MARK: Writing

    /// Inserts a response, unless another one has its identifier.
    /// - Returns: Whether it was inserted.
    func insert(_ item: CacheItem, turn: Int64) throws -> Bool {
        try database.run(
            """
            INSERT INTO response (\(Self.columns), body, cost, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (entry) DO NOTHING
            """,
            [
                .entry(item.entry), .bytes(item.key.bytes), .bytes(item.variant), .text(item.url),
                .integer(item.isPrivate), .integer(item.response.status), .bytes(item.response.fields.bytes),
                .integer(item.response.requestTime), .integer(item.response.responseTime),
                .integer(item.response.isInvalidated), .integer(item.length), .text(item.sha256), .text(item.owner),
                .bytes(item.body), .integer(item.cost), .integer(turn),
            ])
        return database.changes == 1
    }

    /// Updates a revalidated response. It replaces another response that has the same key and now the same variant.
    /// - Returns: the replaced response.
    func refresh(_ entry: UInt64, _ response: StoredResponse, variant: [UInt8]) throws -> [Removed] {
        let assignments = "fields = ?, asked = ?, answered = ?, invalid = ?"
        let values: [Value] = [
            .bytes(response.fields.bytes), .integer(response.requestTime), .integer(response.responseTime),
            .integer(response.isInvalidated), .bytes(variant), .entry(entry),
        ]
        // Nearly always the variant stays, and with it the row's place in the index of keys.
        try database.run("UPDATE response SET \(assignments) WHERE variant = ? AND entry = ?", values)
        guard database.changes == 0 else { return [] }
        let replaced = try remove(
            where: "key = (SELECT key FROM response WHERE entry = ?) AND variant = ?", [.entry(entry), .bytes(variant)])
        try database.run("UPDATE response SET \(assignments), variant = ? WHERE entry = ?", values)
        return replaced
    }

    /// Writes the parts of totals that differ from the totals of the index.
    func set(_ totals: CacheTotals, before: CacheTotals) throws {
        for (owner, part) in totals.parts where before.parts[owner] != part {
            try database.run(
                "REPLACE INTO totals VALUES (?, ?, ?)", [.text(owner), .integer(part.rows), .integer(part.cost)])
        }
        for owner in before.parts.keys where totals.parts[owner] == nil {
            try database.run("DELETE FROM totals WHERE owner = ?", [.text(owner)])
        }
    }

    /// Marks the responses for the URL of a key, in all scopes.
    func invalidate(_ key: CacheDigest) throws {
        let (first, last) = key.boundsOfURL
        try database.run(
            "UPDATE response SET invalid = 1 WHERE key BETWEEN ? AND ?", [.bytes(first), .bytes(last)])
    }

    func recordUse(_ entry: UInt64, turn: Int64) throws {
        try database.run("UPDATE response SET used = ? WHERE entry = ?", [.integer(turn), .entry(entry)])
    }

    /// A removed row.
    struct Removed {
        var key: CacheDigest
        /// Digest of its body file; nil without one.
        var file: String?
        var owner: String
        var cost: Int
    }

    func remove(_ entry: UInt64) throws -> [Removed] { try remove(where: "entry = ?", [.entry(entry)]) }

    /// Removes the least recently used response of an owner.
    func removeOldest(of owner: String) throws -> [Removed] {
        try remove(
            where: "entry = (SELECT entry FROM response WHERE owner = ? ORDER BY used LIMIT 1)", [.text(owner)])
    }

    /// Removes the response of a key and a variant.
    func remove(_ key: CacheDigest, _ variant: [UInt8]) throws -> [Removed] {
        try remove(where: "key = ? AND variant = ?", [.bytes(key.bytes), .bytes(variant)])
    }

    /// Removes the least recently used responses of a key, so that there is room for one more variant.
    func makeRoom(for key: CacheDigest) throws -> [Removed] {
        let surplus = "SELECT entry FROM response WHERE key = ? ORDER BY used DESC LIMIT -1 OFFSET \(Self.variants - 1)"
        return try remove(where: "entry IN (\(surplus))", [.bytes(key.bytes)])
    }

    /// Removes the responses whose body file this is.
    func remove(file sha256: String) throws -> [Removed] {
        try remove(where: "body IS NULL AND sha256 = ?", [.text(sha256)])
    }

    private func remove(where condition: String, _ values: [Value]) throws -> [Removed] {
        let sql = """
            DELETE FROM response WHERE \(condition)
            RETURNING key, cost, iif(body IS NULL AND length > 0, sha256, NULL), owner
            """
        return try database.all(sql, values) { row in
            Removed(
                key: CacheDigest(bytes: row.bytes(0) ?? []), file: row.text(2), owner: row.text(3) ?? "",
                cost: row.number(1))
        }
    }
}

extension Value {
    /// Returns the value of an identifier.
    fileprivate static func entry(_ entry: UInt64) -> Value { .integer(Int64(bitPattern: entry)) }
}

/// Number and size of the stored responses, in total and for each owner.
///
/// The owner of a response is the principal whose request stored it. The administrator is one as any other.
struct CacheTotals: Equatable {
    /// Number of responses, and their size as counted toward the limit in bytes.
    struct Part: Equatable {
        var rows = 0
        var cost = 0

        static func &+ (left: Part, right: Part) -> Part {
            Part(rows: left.rows &+ right.rows, cost: left.cost &+ right.cost)
        }
    }

    private(set) var all = Part()
    /// Parts of the owners that have responses.
    private(set) var parts: [String: Part] = [:]

    /// Adds responses of an owner, or subtracts them if the numbers are negative. The sums wrap, because a damaged index may
    /// have any number.
    mutating func add(_ change: Part, to owner: String) {
        all = all &+ change
        let part = (parts[owner] ?? Part()) &+ change
        parts[owner] = part == Part() ? nil : part
    }

    /// Forgets an owner, whose part turns out to be that of no rows.
    mutating func remove(_ owner: String) {
        guard let part = parts[owner] else { return }
        add(Part(rows: 0 &- part.rows, cost: 0 &- part.cost), to: owner)
    }

    /// Returns the owner with the largest part, and by how much it exceeds the second one; nil without owners. O(owners).
    func largestOwner(by size: KeyPath<Part, Int>) -> (owner: String, lead: Int)? {
        var first: (owner: String, size: Int)?
        var second = 0
        for (owner, part) in parts {
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
