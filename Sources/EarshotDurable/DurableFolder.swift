public import EarshotDisk
public import EarshotLoop

/// Files of durable requests on disk: a database, body files, and a lock.
public struct DurableFolder: Sendable {
    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    var database: String { path + "/requests.sqlite" }
    var bodies: String { path + "/bodies" }
    var lock: String { path + "/durable.lock" }

    /// Creates the folders, accessible to this user only.
    /// - Throws: `StoreError`.
    public func prepare() throws(StoreError) {
        try StoreFolder.prepare(
            path, with: "bodies", files: StoreFolder.files(of: "requests.sqlite") + ["durable.lock"])
    }

    /// Acquires the lock.
    /// - Throws: `StoreError`; its kind says whether another process holds it.
    public func take() throws(StoreError) -> LockFile {
        try StoreFolder.take(lock, of: "the durable requests in \(path)")
    }
}
