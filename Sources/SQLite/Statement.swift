internal import CLibSQLite

/// Prepared statement, owned by its `Database`, which runs it.
@safe final class Statement {
    private let statement: OpaquePointer
    private let connection: OpaquePointer

    /// Prepares the only statement of `sql`.
    @unsafe init(_ sql: String, _ connection: OpaquePointer) throws(DatabaseError) {
        var prepared: OpaquePointer?
        let result = unsafe sqlite3_prepare_v3(
            connection, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &prepared, nil)
        guard result == SQLITE_OK, let prepared = unsafe prepared else {
            throw unsafe .latestError(of: connection, code: result)
        }
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
            case let result: throw unsafe DatabaseError.latestError(of: connection, code: result)
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
        guard result == SQLITE_OK else { throw unsafe .latestError(of: connection, code: result) }
    }
}

/// Current row of a statement, valid during the call that gets it. Columns count from 0.
@safe public struct Row: ~Copyable {
    private let statementHandle: OpaquePointer

    @unsafe init(of statement: OpaquePointer) {
        unsafe self.statementHandle = unsafe statement
    }

    /// Returns the integer of a column; 0 for NULL.
    public func int64(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(statementHandle, column) }

    /// Returns the integer of a column; 0 for NULL.
    public func int(_ column: Int32) -> Int { Int(truncatingIfNeeded: int64(column)) }

    /// Returns whether the integer of a column is not 0.
    public func bool(_ column: Int32) -> Bool { int64(column) != 0 }

    /// Returns whether a column is NULL.
    public func isNull(_ column: Int32) -> Bool { unsafe sqlite3_column_type(statementHandle, column) == SQLITE_NULL }

    /// Returns the text of a column; nil for NULL.
    public func text(_ column: Int32) -> String? { bytes(column).map { String(decoding: $0, as: UTF8.self) } }

    /// Returns the bytes of a column, those of its text in UTF-8; nil for NULL.
    public func bytes(_ column: Int32) -> [UInt8]? {
        guard !isNull(column) else { return nil }
        // SQLite returns no address for an empty value.
        guard let start = unsafe sqlite3_column_blob(statementHandle, column) else { return [] }
        let count = Int(unsafe sqlite3_column_bytes(statementHandle, column))
        return unsafe [UInt8](UnsafeRawBufferPointer(start: start, count: count))
    }
}

/// Value of a parameter of a statement.
public enum Value: Equatable, Sendable {
    case null
    case integer(Int64)
    case text(String)
    case bytes([UInt8])

    /// Returns an integer.
    public static func integer(_ number: Int) -> Value { .integer(Int64(number)) }
    /// Returns 1 for true and 0 for false.
    public static func integer(_ flag: Bool) -> Value { .integer(flag ? 1 : 0) }
    /// Returns a text, or NULL for nil.
    public static func text(_ text: String?) -> Value { text.map { .text($0) } ?? .null }
    /// Returns bytes, or NULL for nil.
    public static func bytes(_ bytes: [UInt8]?) -> Value { bytes.map { .bytes($0) } ?? .null }
}
