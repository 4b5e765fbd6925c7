internal import GRDB

/// What an error of SQLite means to who keeps something in a database.
public enum DatabaseFault {
    /// Whether the file is damaged, or no database. SQLITE_ERROR is about a statement, and says nothing of the file.
    public static func isDamage(_ error: any Error) -> Bool {
        guard let error = error as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_CORRUPT || error.resultCode == .SQLITE_NOTADB
    }

    /// SQLite's words, without arguments of statements: they hold URLs.
    public static func words(_ error: any Error) -> String {
        guard let error = error as? DatabaseError else { return "\(error)" }
        return "\(error.resultCode) \(error.message ?? "")"
    }
}
