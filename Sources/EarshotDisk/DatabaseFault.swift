internal import GRDB

/// What an error of SQLite means to who keeps something in a database.
public enum DatabaseFault {
    /// Whether the file is damaged, or is another database.
    public static func isDamage(_ error: any Error) -> Bool {
        guard let error = error as? DatabaseError else { return false }
        switch error.resultCode {
        case .SQLITE_CORRUPT, .SQLITE_NOTADB, .SQLITE_FORMAT: return true
        // A database by its head, with other tables.
        case .SQLITE_ERROR: return true
        default: return false
        }
    }

    /// SQLite's words, without arguments of statements: they hold URLs.
    public static func words(_ error: any Error) -> String {
        guard let error = error as? DatabaseError else { return "\(error)" }
        return "\(error.resultCode) \(error.message ?? "")"
    }
}
