internal import CLibSQLite

/// Error of SQLite: its primary result code, and a message without the values of statements.
public struct DatabaseError: Error, Equatable, CustomStringConvertible {
    /// Primary result code, as SQLITE_FULL.
    public let code: Int32
    /// SQLite's description, as `database or disk is full`.
    public let message: String

    public var description: String { "SQLite error \(code): \(message)" }

    /// Whether the file is corrupt or not a database. SQLITE_ERROR concerns a statement, not the file.
    public var isDamage: Bool { code == SQLITE_CORRUPT || code == SQLITE_NOTADB }

    /// Returns the error of the latest call for a connection.
    @unsafe static func latest(_ connection: OpaquePointer?, _ code: Int32) -> DatabaseError {
        let message = unsafe connection.flatMap { unsafe sqlite3_errmsg($0) } ?? sqlite3_errstr(code)
        return unsafe DatabaseError(code: code & 0xff, message: message.map { unsafe String(cString: $0) } ?? "")
    }
}
