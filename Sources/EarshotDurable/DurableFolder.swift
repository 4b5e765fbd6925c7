public import EarshotDisk

/// Files of durable requests on disk: a database, body files, and a lock.
public struct DurableFolder: StoreFolder {
    /// Name in messages.
    public static let title = "the durable requests"
    /// File name of the database.
    public static let databaseName = "requests.sqlite"
    /// File name of the lock.
    public static let lockName = "durable.lock"
    /// None.
    public static let otherFiles: [String] = []

    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    /// Returns a sentence about a removed or replaced file or folder, with the remedy.
    public static func removed(_ path: String) -> String {
        "\(path) was removed or replaced: restore it, or restart the broker to begin with no durable requests"
    }
}
