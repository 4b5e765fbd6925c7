internal import EarshotHTTP
internal import Foundation
internal import GRDB

/// Table of stored responses, and its statements. Used only on the cache's thread.
struct CacheIndex {
    /// Maximum number of variants per key: more than ordinary servers have, and few enough to scan.
    static let variants = 8
    /// Maximum number of rows of any size, because the broker keeps their keys in memory.
    static let rows = 1 << 20
    private static let version = 1

    private let database: DatabaseQueue

    /// Opens the index, and creates it if needed.
    init(_ path: String, isReadOnly: Bool = false) throws {
        var configuration = Configuration()
        configuration.readonly = isReadOnly
        configuration.label = "cache"
        configuration.busyMode = .timeout(2)
        // SQLite's messages then contain no stored values.
        configuration.publicStatementArguments = false
        configuration.prepareDatabase { db in
            if !isReadOnly {
                _ = try String.fetchOne(db, sql: "PRAGMA journal_mode = WAL")
                try db.execute(sql: "PRAGMA synchronous = NORMAL")
            }
            try db.execute(sql: "PRAGMA cache_size = -8192")
        }
        database = try DatabaseQueue(path: path, configuration: configuration)
        guard !isReadOnly else { return }
        try database.writeWithoutTransaction { db in
            if try Int.fetchOne(db, sql: "PRAGMA user_version") != Self.version {
                try db.execute(sql: "DROP TABLE IF EXISTS response")
                try db.execute(sql: Self.schema)
                try db.execute(sql: "PRAGMA user_version = \(Self.version)")
            }
        }
    }

    private static let schema = """
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
            cost INTEGER NOT NULL,
            used INTEGER NOT NULL,
            UNIQUE (key, variant));
        CREATE INDEX response_url ON response (url);
        CREATE INDEX response_used ON response (used);
        CREATE INDEX response_sha256 ON response (sha256) WHERE body IS NULL AND length > 0;
        """

    // MARK: Reading

    func read<Value>(_ body: (Database) throws -> Value) throws -> Value { try database.read(body) }

    /// Runs `body` in a transaction.
    func write<Value>(_ body: (Database) throws -> Value) throws -> Value { try database.write(body) }

    func items(of key: CacheDigest) throws -> [CacheItem] {
        try read { db in
            let statement = try db.cachedStatement(sql: "SELECT * FROM response WHERE key = ?")
            return try Row.fetchAll(statement, arguments: [Data(key.bytes)]).map(Self.item)
        }
    }

    /// Returns the body of a response, or the digest of its file; nil if there is no such response.
    func body(of entry: UInt64) throws -> (bytes: [UInt8]?, sha256: String?, length: Int)? {
        try read { db in
            let statement = try db.cachedStatement(sql: "SELECT body, sha256, length FROM response WHERE entry = ?")
            guard let row = try Row.fetchOne(statement, arguments: [Int64(entry)]) else { return nil }
            let body: Data? = row["body"]
            return (body.map { [UInt8]($0) }, row["sha256"], row["length"])
        }
    }

    /// Returns the digests of all body files.
    static func files(_ db: Database) throws -> Set<String> {
        try String.fetchSet(db, sql: "SELECT sha256 FROM response WHERE body IS NULL AND length > 0")
    }

    /// Returns whether a response is stored under the key.
    static func has(_ key: Data, _ db: Database) throws -> Bool {
        let statement = try db.cachedStatement(sql: "SELECT 1 FROM response WHERE key = ? LIMIT 1")
        return try Int.fetchOne(statement, arguments: [key]) != nil
    }

    static func item(_ row: Row) -> CacheItem {
        let variant: Data = row["variant"]
        let fields: Data = row["fields"]
        let key: Data = row["key"]
        let body: Data? = row["body"]
        let response = StoredResponse(
            status: row["status"], fields: HeaderFields(lines: [UInt8](fields)), requestTime: row["asked"],
            responseTime: row["answered"], varyKey: VaryKey(canonical: [UInt8](variant)), isInvalidated: row["invalid"])
        let entry: Int64 = row["entry"]
        return CacheItem(
            entry: UInt64(bitPattern: entry), key: CacheDigest(bytes: [UInt8](key)), url: row["url"],
            isPrivate: row["private"], variant: [UInt8](variant), response: response, length: row["length"],
            sha256: row["sha256"], body: body.map { [UInt8]($0) })
    }

    // MARK: Writing

    static func insert(_ item: CacheItem, _ db: Database, turn: Int64) throws {
        let statement = try db.cachedStatement(
            sql: """
                INSERT INTO response (entry, key, variant, url, private, status, fields, asked, answered, invalid, length,
                    sha256, body, cost, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """)
        try statement.execute(arguments: [
            Int64(item.entry), Data(item.key.bytes), Data(item.variant), item.url, item.isPrivate,
            item.response.status, Data(item.response.fields.bytes), item.response.requestTime,
            item.response.responseTime, item.response.isInvalidated, item.length, item.sha256,
            item.body.map { Data($0) }, item.cost, turn,
        ])
    }

    /// A removed row.
    struct Removed {
        var key: CacheDigest
        var sha256: String?
        var cost: Int
    }

    /// Removes the rows that satisfy `condition`.
    static func remove(
        _ db: Database, where condition: String, _ arguments: StatementArguments
    ) throws -> [Removed] {
        let statement = try db.cachedStatement(
            sql:
                "DELETE FROM response WHERE \(condition) RETURNING key, sha256, cost, body IS NULL AND length > 0 AS file"
        )
        return try Row.fetchAll(statement, arguments: arguments).map { row in
            let key: Data = row["key"]
            let isFile: Bool = row["file"]
            return Removed(
                key: CacheDigest(bytes: [UInt8](key)), sha256: isFile ? row["sha256"] : nil, cost: row["cost"])
        }
    }
}
