internal import CLibSQLite

/// Current row of a statement, valid during the call that gets it. Columns count from 0.
@safe public struct Row: ~Copyable {
    private let statement: OpaquePointer

    @unsafe init(of statement: OpaquePointer) {
        unsafe self.statement = unsafe statement
    }

    /// Returns the integer of a column; 0 for NULL.
    public func integer(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(statement, column) }

    /// Returns the integer of a column; 0 for NULL.
    public func number(_ column: Int32) -> Int { Int(truncatingIfNeeded: integer(column)) }

    /// Returns whether the integer of a column is not 0.
    public func flag(_ column: Int32) -> Bool { integer(column) != 0 }

    /// Returns whether a column is NULL.
    public func isNull(_ column: Int32) -> Bool { unsafe sqlite3_column_type(statement, column) == SQLITE_NULL }

    /// Returns the text of a column; nil for NULL.
    public func text(_ column: Int32) -> String? { bytes(column).map { String(decoding: $0, as: UTF8.self) } }

    /// Returns the bytes of a column, those of its text in UTF-8; nil for NULL.
    public func bytes(_ column: Int32) -> [UInt8]? {
        guard !isNull(column) else { return nil }
        // SQLite returns no address for an empty value.
        guard let start = unsafe sqlite3_column_blob(statement, column) else { return [] }
        let count = Int(unsafe sqlite3_column_bytes(statement, column))
        return unsafe [UInt8](UnsafeRawBufferPointer(start: start, count: count))
    }
}
