internal import EarshotDisk
internal import EarshotLoop
internal import SQLite

/// Table of durable requests, and its statements. Used only on its thread.
struct DurableTable {
    private static let schemaVersion = 3

    private let database: Database
    private let path: String
    private let databaseFile: FileIdentity?
    /// Whether the table was created by this call.
    let isNew: Bool

    /// Opens the database, and creates it if needed.
    /// - Throws: `StoreError` of the kind `incompatible` for a table that this version cannot read; errors of SQLite.
    init(_ path: String) throws {
        database = try Database(path)
        // Every commit is flushed, so that it survives a power failure.
        try database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -4096")
        isNew = try database.transaction { [database] in
            let version = try database.firstInteger("PRAGMA user_version") ?? 0
            guard version != Self.schemaVersion else { return false }
            let isEmpty = try database.firstInteger("SELECT count(*) FROM sqlite_master") == 0
            guard version == 0, isEmpty else { throw Self.incompatibleError(path, version: version) }
            try database.execute("\(Self.schema); PRAGMA user_version = \(Self.schemaVersion)")
            return true
        }
        self.path = path
        databaseFile = FileIdentity(path: path)
    }

    /// Whether the path still names the database. SQLite would continue to write to a removed file, which no later
    /// broker would find.
    var isInPlace: Bool { databaseFile != nil && FileIdentity(path: path) == databaseFile }

    private static func incompatibleError(_ path: String, version: Int) -> StoreError {
        let isNewer = version > Self.schemaVersion
        let what = isNewer ? "of a newer Earshot (version \(version) of its table)" : "of another program"
        return StoreError(
            "the durable requests in \(path) are \(what), and are left as they are: use a newer Earshot, or another"
                + " --durable-folder, or --no-durable", .incompatible)
    }

    /// Schema. `principal` is nil for the administrator. `ended` is the head of the terminal, nil before the request
    /// has ended; `length` and `sha256` describe its body.
    private static let schema = """
        CREATE TABLE request (
            id INTEGER PRIMARY KEY,
            principal TEXT,
            accepted INTEGER NOT NULL,
            head BLOB NOT NULL,
            ended BLOB,
            length INTEGER NOT NULL DEFAULT 0,
            sha256 TEXT,
            body BLOB);
        CREATE INDEX request_principal ON request (principal) WHERE principal IS NOT NULL;
        CREATE INDEX request_sha256 ON request (sha256) WHERE sha256 IS NOT NULL AND body IS NULL
        """

    /// Estimated overhead of a row in bytes.
    private static let rowOverheadBytes = 256
    /// Size of a row as counted toward the limit. Computed, so that a damaged row cannot have an impossible one: a
    /// length is counted only for a body file, which has that length.
    private static let costExpression = """
        (\(rowOverheadBytes) + length(head) + iif(ended IS NULL, 0,
            length(ended) + iif(body IS NULL, iif(sha256 IS NULL, 0, length), length(body))))
        """

    /// Returns the cost of a request without a result.
    static func costBytes(ofHead head: [UInt8]) -> Int { rowOverheadBytes + head.count }

    /// Runs `body` in a transaction.
    func transaction<Result>(_ body: () throws -> Result) throws -> Result { try database.transaction(body) }

    // MARK: Statements

    /// Number of rows and bytes of heads that end a slice: the core takes a few milliseconds to load it.
    private static let maximumSliceRows = 256
    private static let maximumSliceHeadBytes = 256 << 10
    private struct SliceIsFull: Error {}

    /// Returns the next slice of rows after one, in the order of their identifiers.
    ///
    /// - Parameters:
    ///   - id: nil before the first row.
    ///   - principal: principal of the rows; nil for those of all.
    func rows(after id: UInt64?, principal: String? = nil) throws -> [DurableRow] {
        let sql = """
            SELECT id, accepted, head, principal, ended IS NOT NULL, substr(ended, 1, \(Self.terminalSummaryBytes)), length,
                iif(body IS NULL, sha256, NULL), \(Self.costExpression) - \(Self.rowOverheadBytes) - length(head)
            FROM request WHERE id > ? \(principal == nil ? "" : "AND principal = ?") ORDER BY id LIMIT \(Self.maximumSliceRows)
            """
        let first: Value = id.map { .id($0) } ?? .integer(Int64.min)
        let values = [first] + (principal.map { [Value.text($0)] } ?? [])
        var rows: [DurableRow] = []
        var bytes = 0
        do {
            try database.forEach(sql, values) { row in
                let file = row.text(7)
                let head = row.bytes(2) ?? []
                let durableRow = DurableRow(
                    id: UInt64(bitPattern: row.int64(0)), acceptedAt: row.int64(1), fetchHead: head,
                    principal: row.text(3), hasEnded: row.bool(4),
                    resultSummary: DurableRow.Summary(terminalStart: row.bytes(5) ?? []), bodyFile: file,
                    bodyFileBytes: file == nil ? 0 : row.int(6), resultBytes: row.int(8))
                rows.append(durableRow)
                bytes += head.count
                if bytes >= Self.maximumSliceHeadBytes { throw SliceIsFull() }
            }
        } catch is SliceIsFull {}
        return rows
    }

    /// Bytes at the start of a terminal that contain its first line and its short fields: everything before the header
    /// fields of a response, unless its URL or its redirects are longer.
    private static let terminalSummaryBytes = 1_024

    /// Returns the requests whose result has a body file, with its digest and length.
    func requestsWithBodyFiles() throws -> [(id: UInt64, acceptedAt: Int64, sha256: String, length: Int)] {
        let sql = "SELECT id, accepted, sha256, length FROM request WHERE sha256 IS NOT NULL AND body IS NULL"
        return try database.mapRows(sql) { row in
            (UInt64(bitPattern: row.int64(0)), row.int64(1), row.text(2) ?? "", row.int(3))
        }
    }

    /// Returns the total cost of all rows.
    func totalCostBytes() throws -> Int {
        try database.firstInteger("SELECT sum(\(Self.costExpression)) FROM request") ?? 0
    }

    /// - Parameter principal: nil for the administrator.
    func insert(_ id: UInt64, principal: String?, acceptedAt: Int64, head: [UInt8]) throws {
        try database.run(
            "INSERT INTO request (id, principal, accepted, head) VALUES (?, ?, ?, ?)",
            [.id(id), .text(principal), .integer(acceptedAt), .bytes(head)])
    }

    /// Cost of a row, and its body file.
    struct StoredResult {
        var costBytes: Int
        var bodyFile: String?
    }

    func storedResult(of id: UInt64) throws -> StoredResult? {
        let sql = "SELECT \(Self.costExpression), iif(body IS NULL, sha256, NULL) FROM request WHERE id = ?"
        return try database.mapFirstRow(sql, [.id(id)]) { row in
            StoredResult(costBytes: row.int(0), bodyFile: row.text(1))
        }
    }

    func setResult(of id: UInt64, _ end: DurableEnd) throws {
        try database.run(
            "UPDATE request SET ended = ?, length = ?, sha256 = ?, body = ? WHERE id = ?",
            [.bytes(end.terminalHead), .integer(end.bodyLength), .text(end.sha256), .bytes(end.body), .id(id)])
    }

    /// Removes the result of a request, so that the request starts again.
    ///
    /// - Returns: the head of its FETCH; nil if there is no such request with a result.
    @discardableResult
    func reopen(_ id: UInt64, acceptedAt: Int64) throws -> [UInt8]? {
        let sql = """
            UPDATE request SET accepted = ?, ended = NULL, length = 0, sha256 = NULL, body = NULL
            WHERE id = ? AND ended IS NOT NULL RETURNING head
            """
        return try database.mapFirstRow(sql, [.integer(acceptedAt), .id(id)]) { row in row.bytes(0) ?? [] }
    }

    func delete(_ id: UInt64) throws { try database.run("DELETE FROM request WHERE id = ?", [.id(id)]) }

    /// Returns whether a row has this body file.
    func hasRow(withBodyFile file: String) throws -> Bool {
        let sql = "SELECT 1 FROM request WHERE sha256 = ? AND sha256 IS NOT NULL AND body IS NULL LIMIT 1"
        return try database.firstInteger(sql, [.text(file)]) != nil
    }

    func result(of id: UInt64) throws -> DurableEnd? {
        let sql = "SELECT ended, length, sha256, body FROM request WHERE id = ? AND ended IS NOT NULL"
        return try database.mapFirstRow(sql, [.id(id)]) { row in
            DurableEnd(
                terminalHead: row.bytes(0) ?? [], bodyLength: row.int(1), sha256: row.text(2), body: row.bytes(3))
        }
    }
}

extension Value {
    /// Returns the value of an identifier.
    fileprivate static func id(_ id: UInt64) -> Value { .integer(Int64(bitPattern: id)) }
}
