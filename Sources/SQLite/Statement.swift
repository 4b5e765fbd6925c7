internal import CLibSQLite

/// Prepared statement, owned by its connection.
@safe final class Statement {
    private let statement: OpaquePointer
    private let connection: OpaquePointer

    /// Prepares the only statement of `sql`.
    @unsafe init(_ sql: String, _ connection: OpaquePointer) throws(DatabaseError) {
        var prepared: OpaquePointer?
        let result = unsafe sqlite3_prepare_v3(
            connection, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &prepared, nil)
        guard result == SQLITE_OK, let prepared = unsafe prepared else { throw unsafe .latest(connection, result) }
        unsafe statement = unsafe prepared
        unsafe self.connection = unsafe connection
    }

    deinit {
        unsafe sqlite3_finalize(statement)
    }

    /// Runs the statement with these values. Calls `body` for each row; if it throws, the statement ends.
    func run(_ values: [Value], _ body: (borrowing Row) throws -> Void) throws {
        // The result of the reset repeats the error of the last step.
        defer { unsafe sqlite3_reset(statement) }
        for (index, value) in values.enumerated() { try bind(value, at: Int32(index) + 1) }
        while true {
            switch unsafe sqlite3_step(statement) {
            case SQLITE_ROW: try body(unsafe Row(of: statement))
            case SQLITE_DONE: return
            case let result: throw unsafe DatabaseError.latest(connection, result)
            }
        }
    }

    private func bind(_ value: Value, at index: Int32) throws(DatabaseError) {
        let result =
            switch value {
            case .null: unsafe sqlite3_bind_null(statement, index)
            case .integer(let number): unsafe sqlite3_bind_int64(statement, index, number)
            case .text(var text):
                text.withUTF8 { utf8 in
                    unsafe sqlite3_bind_text64(
                        statement, index, UnsafeRawPointer(utf8.baseAddress)?.assumingMemoryBound(to: CChar.self),
                        UInt64(utf8.count), sqlite_transient(), UInt8(SQLITE_UTF8))
                }
            // SQLite binds NULL for no address.
            case .bytes([]): unsafe sqlite3_bind_zeroblob(statement, index, 0)
            case .bytes(let bytes):
                unsafe bytes.withUnsafeBytes {
                    unsafe sqlite3_bind_blob64(statement, index, $0.baseAddress, UInt64($0.count), sqlite_transient())
                }
            }
        guard result == SQLITE_OK else { throw unsafe .latest(connection, result) }
    }
}
