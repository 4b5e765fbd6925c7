public import EarshotDisk
public import EarshotLoop

/// Where durable requests are on the disk: a database, the bodies that are files, and a lock.
public struct DurableFolder: Sendable {
    /// Absolute, without a slash at its end.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    var database: String { path + "/requests.sqlite" }
    var bodies: String { path + "/bodies" }
    var lock: String { path + "/durable.lock" }

    /// Makes the folders, for this user alone.
    /// - Throws: `StoreError`.
    public func prepare() throws(StoreError) {
        try StoreFolder.prepare(
            path, with: "bodies", files: StoreFolder.files(of: "requests.sqlite") + ["durable.lock"])
    }

    /// Takes the lock.
    /// - Throws: `StoreError`; its kind says whether another process has it.
    public func take() throws(StoreError) -> LockFile {
        try StoreFolder.take(lock, of: "the durable requests in \(path)")
    }
}
