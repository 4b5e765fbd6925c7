internal import GRDB

/// Classification of SQLite errors.
public enum DatabaseFault {
    /// Returns whether the file is corrupt or not a database. SQLITE_ERROR concerns a statement, not the file.
    public static func isDamage(_ error: any Error) -> Bool {
        guard let error = error as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_CORRUPT || error.resultCode == .SQLITE_NOTADB
    }

    /// Returns SQLite's message without the arguments of statements, which contain URLs.
    public static func words(_ error: any Error) -> String {
        guard let error = error as? DatabaseError else { return "\(error)" }
        return "\(error.resultCode) \(error.message ?? "")"
    }
}
