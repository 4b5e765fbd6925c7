internal import EarshotDisk
internal import EarshotLoop
internal import Foundation
internal import GRDB

/// Table of durable requests, and its statements. Used only on its thread.
struct DurableTable {
    /// Version 1 has no column `principal`: all its requests are the administrator's.
    private static let version = 2

    private let database: DatabaseQueue
    private let path: String
    private let file: FileIdentity?
    /// Whether the table was created by this call.
    let isNew: Bool

    /// Opens the database, and creates it if needed.
    /// - Throws: `StoreError` of the kind `foreign` for a table that this version cannot read; errors of SQLite.
    init(_ path: String) throws {
        var configuration = Configuration()
        configuration.label = "durable"
        // SQLite's messages then contain no stored values.
        configuration.publicStatementArguments = false
        configuration.prepareDatabase { db in
            _ = try String.fetchOne(db, sql: "PRAGMA journal_mode = WAL")
            // Every commit is flushed, so that it survives a power failure.
            try db.execute(sql: "PRAGMA synchronous = FULL")
            try db.execute(sql: "PRAGMA cache_size = -4096")
        }
        database = try DatabaseQueue(path: path, configuration: configuration)
        isNew = try database.write { db in
            let version = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
            guard version != Self.version else { return false }
            if version == 1 {
                try db.execute(sql: Self.principalColumn)
                try db.execute(sql: "PRAGMA user_version = \(Self.version)")
                return false
            }
            let isEmpty = try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_master") == 0
            guard version == 0, isEmpty else { throw Self.foreign(path, version: version) }
            try db.execute(sql: Self.schema)
            try db.execute(sql: Self.principalColumn)
            try db.execute(sql: "PRAGMA user_version = \(Self.version)")
            return true
        }
        self.path = path
        file = FileIdentity(path: path)
    }

    /// Whether the path still names the database. SQLite would continue to write to a removed file, which no later
    /// broker would find.
    var isInPlace: Bool { file != nil && FileIdentity(path: path) == file }

    private static func foreign(_ path: String, version: Int) -> StoreError {
        let isNewer = version > Self.version
        let what = isNewer ? "of a newer Earshot (version \(version) of its table)" : "of another program"
        return StoreError(
            "the durable requests in \(path) are \(what), and are left as they are: use a newer Earshot, or another"
                + " --durable-folder, or --no-durable", .foreign)
    }

    /// Schema. `ended` is the head of the terminal; nil before the request has ended.
    private static let schema = """
        CREATE TABLE request (
            id INTEGER PRIMARY KEY,
            accepted INTEGER NOT NULL,
            head BLOB NOT NULL,
            ended BLOB,
            length INTEGER NOT NULL DEFAULT 0,
            sha256 TEXT,
            body BLOB,
            cost INTEGER NOT NULL);
        CREATE INDEX request_sha256 ON request (sha256) WHERE sha256 IS NOT NULL AND body IS NULL;
        """

    /// Adds the name of the principal; null for the administrator.
    private static let principalColumn = "ALTER TABLE request ADD COLUMN principal TEXT"

    func read<Value>(_ body: (Database) throws -> Value) throws -> Value { try database.read(body) }

    /// Runs `body` in a transaction.
    func write<Value>(_ body: (Database) throws -> Value) throws -> Value { try database.write(body) }

    // MARK: Statements

    static func rows(_ db: Database) throws -> [DurableRow] {
        let sql = """
            SELECT id, accepted, head, principal, ended IS NOT NULL AS hasEnded, substr(ended, 1, \(linesBytes)) AS lines, length,
                iif(body IS NULL, sha256, NULL) AS file
            FROM request ORDER BY id
            """
        return try Row.fetchAll(db, sql: sql).map { row in
            let id: Int64 = row["id"]
            let head: Data = row["head"]
            let file: String? = row["file"]
            return DurableRow(
                id: UInt64(bitPattern: id), acceptedAt: row["accepted"], head: [UInt8](head),
                principal: row["principal"], hasEnded: row["hasEnded"], summary: DurableRow.Summary(row["lines"]),
                file: file, fileBytes: file == nil ? 0 : row["length"])
        }
    }

    /// Bytes at the start of a terminal that contain its first line and its short fields: everything before the header
    /// fields of a response, unless its URL or its redirects are longer.
    private static let linesBytes = 1_024

    /// Returns the total size of all rows, as counted toward the limit.
    static func cost(_ db: Database) throws -> Int { try Int.fetchOne(db, sql: "SELECT sum(cost) FROM request") ?? 0 }

    /// - Parameter principal: nil for the administrator.
    static func insert(
        _ db: Database, id: UInt64, principal: String?, acceptedAt: Int64, head: [UInt8], cost: Int
    ) throws {
        let statement = try db.cachedStatement(
            sql: "INSERT INTO request (id, principal, accepted, head, cost) VALUES (?, ?, ?, ?, ?)")
        try statement.execute(arguments: [Int64(bitPattern: id), principal, acceptedAt, Data(head), cost])
    }

    /// Size of a row as counted toward the limit, and its body file.
    struct Held {
        var cost: Int
        var file: String?
    }

    static func held(_ db: Database, id: UInt64) throws -> Held? {
        let statement = try db.cachedStatement(
            sql: "SELECT cost, iif(body IS NULL, sha256, NULL) AS file FROM request WHERE id = ?")
        return try Row.fetchOne(statement, arguments: [Int64(bitPattern: id)]).map {
            Held(cost: $0["cost"], file: $0["file"])
        }
    }

    static func update(_ db: Database, id: UInt64, _ end: DurableEnd, cost: Int) throws {
        let statement = try db.cachedStatement(
            sql: "UPDATE request SET ended = ?, length = ?, sha256 = ?, body = ?, cost = ? WHERE id = ?")
        try statement.execute(arguments: [
            Data(end.head), end.length, end.sha256, end.body.map { Data($0) }, cost, Int64(bitPattern: id),
        ])
    }

    /// Removes the result of a request, so that the request starts again.
    ///
    /// - Returns: the head of its FETCH; nil if there is no such request with a result.
    @discardableResult
    static func reopen(_ db: Database, id: UInt64, acceptedAt: Int64) throws -> [UInt8]? {
        let statement = try db.cachedStatement(
            sql: """
                UPDATE request SET cost = cost - length - length(ended), accepted = ?, ended = NULL, length = 0,
                    sha256 = NULL, body = NULL
                WHERE id = ? AND ended IS NOT NULL RETURNING head
                """)
        return try Data.fetchOne(statement, arguments: [acceptedAt, Int64(bitPattern: id)]).map { [UInt8]($0) }
    }

    static func delete(_ db: Database, id: UInt64) throws {
        let statement = try db.cachedStatement(sql: "DELETE FROM request WHERE id = ?")
        try statement.execute(arguments: [Int64(bitPattern: id)])
    }

    /// Returns whether a row has this body file.
    static func names(_ db: Database, file: String) throws -> Bool {
        let statement = try db.cachedStatement(
            sql: "SELECT 1 FROM request WHERE sha256 = ? AND sha256 IS NOT NULL AND body IS NULL LIMIT 1")
        return try Int.fetchOne(statement, arguments: [file]) != nil
    }

    func end(of id: UInt64) throws -> DurableEnd? {
        try read { db in
            let statement = try db.cachedStatement(
                sql: "SELECT ended, length, sha256, body FROM request WHERE id = ? AND ended IS NOT NULL")
            guard let row = try Row.fetchOne(statement, arguments: [Int64(bitPattern: id)]) else { return nil }
            let head: Data = row["ended"]
            let body: Data? = row["body"]
            return DurableEnd(
                head: [UInt8](head), length: row["length"], sha256: row["sha256"], body: body.map { [UInt8]($0) })
        }
    }
}
