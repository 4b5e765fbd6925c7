internal import CLibSQLite

/// Connection to an SQLite database, for one thread. Statements stay prepared as long as it is open.
@safe public final class Database {
    private let connection: OpaquePointer
    private var statements: [String: Statement] = [:]

    /// Opens a database. A missing one is created, unless it is opened for reading.
    ///
    /// - Parameters:
    ///   - busyMilliseconds: maximum wait for the lock of another connection.
    ///   - isReadOnly: whether statements may not change it.
    public init(_ path: String, busyMilliseconds: Int32 = 0, isReadOnly: Bool = false) throws(DatabaseError) {
        var opened: OpaquePointer?
        // Without a mutex of SQLite, because one thread uses the connection.
        let access = isReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
        let result = unsafe sqlite3_open_v2(path, &opened, access | SQLITE_OPEN_NOMUTEX, nil)
        guard result == SQLITE_OK, let opened = unsafe opened else {
            let error = unsafe DatabaseError.latestError(of: opened, code: result)
            unsafe sqlite3_close_v2(opened)
            throw error
        }
        unsafe connection = unsafe opened
        unsafe sqlite3_busy_timeout(connection, busyMilliseconds)
    }

    deinit {
        statements = [:]
        unsafe sqlite3_close_v2(connection)
    }

    /// Runs statements without parameters that are separated by semicolons, and drops their rows. They are not kept.
    public func execute(_ script: String) throws(DatabaseError) {
        let result = unsafe sqlite3_exec(connection, script, nil, nil, nil)
        guard result == SQLITE_OK else { throw unsafe .latestError(of: connection, code: result) }
    }

    /// Runs a statement with values for its parameters, in order.
    public func run(_ sql: String, _ values: [Value] = []) throws { try forEach(sql, values) { _ in } }

    /// Calls `body` for each row of a statement. `body` may not run the same statement.
    public func forEach(_ sql: String, _ values: [Value] = [], body: (borrowing Row) throws -> Void) throws {
        if let statement = statements[sql] { return try statement.run(values, body) }
        let statement = try unsafe Statement(sql, connection)
        statements[sql] = statement
        try statement.run(values, body)
    }

    /// Returns the results of `body` for the rows of a statement.
    public func mapRows<Element>(
        _ sql: String, _ values: [Value] = [], body: (borrowing Row) throws -> Element
    ) throws -> [Element] {
        var elements: [Element] = []
        try forEach(sql, values) { row in elements.append(try body(row)) }
        return elements
    }

    /// Returns the result of `body` for the first row of a statement; nil without a row.
    public func mapFirstRow<Element>(
        _ sql: String, _ values: [Value] = [], body: (borrowing Row) throws -> Element
    ) throws -> Element? {
        var found: Element?
        try forEach(sql, values) { row in if found == nil { found = try body(row) } }
        return found
    }

    /// Returns the integer in the first column of the first row; nil for NULL or without a row.
    public func firstInteger(_ sql: String, _ values: [Value] = []) throws -> Int? {
        var found: Int?
        try forEach(sql, values) { row in if !row.isNull(0) { found = row.int(0) } }
        return found
    }

    /// Number of rows that the latest INSERT, UPDATE or DELETE changed.
    public var changedRowCount: Int { Int(unsafe sqlite3_changes(connection)) }

    // MARK: Transactions

    /// Whether a transaction is open. SQLite itself ends one after some errors, as a full disk.
    public var isInTransaction: Bool { unsafe sqlite3_get_autocommit(connection) == 0 }

    /// - Parameter isImmediate: whether it begins with the lock for writing. Otherwise the first change takes it.
    public func begin(isImmediate: Bool = false) throws { try run(isImmediate ? "BEGIN IMMEDIATE" : "BEGIN") }

    /// Ends the transaction with effect. After an error it may be open still.
    public func commit() throws { try run("COMMIT") }

    /// Ends an open transaction without effect.
    public func rollBack() {
        guard isInTransaction else { return }
        // An error would be that the transaction has ended.
        try? run("ROLLBACK")
    }

    /// Runs `body` in a transaction for writing, which has no effect if an error is thrown.
    public func transaction<Result>(_ body: () throws -> Result) throws -> Result {
        try begin(isImmediate: true)
        do {
            let result = try body()
            try commit()
            return result
        } catch {
            rollBack()
            throw error
        }
    }
}

/// Error of SQLite: its primary result code, and a message without the values of statements.
public struct DatabaseError: Error, Equatable, CustomStringConvertible {
    /// Primary result code, as SQLITE_FULL.
    public let code: Int32
    /// SQLite's description, as `database or disk is full`.
    public let message: String

    public var description: String { "SQLite error \(code): \(message)" }

    /// Whether the file is corrupt or not a database. SQLITE_ERROR concerns a statement, not the file.
    public var isCorruption: Bool { code == SQLITE_CORRUPT || code == SQLITE_NOTADB }

    /// Returns the error of the latest call for a connection.
    @unsafe static func latestError(of connection: OpaquePointer?, code: Int32) -> DatabaseError {
        let message = unsafe connection.flatMap { unsafe sqlite3_errmsg($0) } ?? sqlite3_errstr(code)
        return unsafe DatabaseError(code: code & 0xff, message: message.map { unsafe String(cString: $0) } ?? "")
    }
}
