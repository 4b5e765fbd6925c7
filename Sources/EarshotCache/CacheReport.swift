public import EarshotDisk
internal import EarshotHTTP
internal import Glibc
internal import LibCrypto
internal import SQLite

/// Contents of a cache, read from its files. Works while a broker uses the cache.
public struct CacheReport {
    /// Totals of a cache.
    public struct Totals: Equatable, Sendable {
        /// Number of stored responses.
        public var responseCount = 0
        /// Number of responses to requests with credentials.
        public var privateResponseCount = 0
        /// Number of body files.
        public var bodyFileCount = 0
        /// Total length of all bodies in bytes.
        public var bodyBytes = 0
        /// Size counted toward the limit in bytes.
        public var costBytes = 0
    }

    /// Description of a stored response.
    public struct ResponseSummary: Equatable, Sendable {
        /// URL without user information, as in all stored responses.
        public let url: String
        /// Status sent by the server.
        public let status: Int
        /// Length of the decoded body in bytes.
        public let length: Int
        /// Whether the request had credentials.
        public let isPrivate: Bool
        /// Whether it must be revalidated before use.
        public let isInvalidated: Bool
        /// Whether it can be used without revalidation.
        public let isFresh: Bool
        /// Time of receipt or of the last revalidation, in seconds since 1970.
        public let responseTime: Int64
    }

    private let folder: CacheFolder
    private let index: CacheIndex?

    /// Opens a cache for reading; a missing one is empty.
    /// - Throws: `StoreError`.
    public init(_ folder: CacheFolder) throws(StoreError) {
        self.folder = folder
        guard try folder.checkExistingFolders(), unsafe access(folder.databasePath, F_OK) == 0 else {
            index = nil
            return
        }
        do {
            index = try CacheIndex(folder.databasePath, isReadOnly: true)
        } catch {
            throw StoreError("the index of the cache cannot be read: \(error)")
        }
    }

    /// Returns the totals. O(responses).
    public func totals() throws -> Totals {
        guard let index else { return Totals() }
        let sums = "count(*), coalesce(sum(private), 0), coalesce(sum(length), 0), coalesce(sum(cost), 0)"
        var numbers = try index.database.mapFirstRow("SELECT \(sums) FROM response") { row in
            Totals(
                responseCount: row.int(0), privateResponseCount: row.int(1), bodyBytes: row.int(2),
                costBytes: row.int(3))
        }
        numbers?.bodyFileCount = try index.bodyFiles().count
        return numbers ?? Totals()
    }

    /// Calls `body` for each stored response: by user, the most recently used first.
    public func forEachResponse(now: Int64, _ body: (ResponseSummary) throws -> Void) throws {
        try index?.forEachItem { item in
            let response = item.response
            let summary = ResponseSummary(
                url: item.url, status: response.status, length: item.length, isPrivate: item.isPrivate,
                isInvalidated: response.isInvalidated, isFresh: CacheRule().isFresh(response, now: now),
                responseTime: response.responseTime)
            try body(summary)
        }
    }

    /// Verifies all contents, and returns a message for each fault. O(bytes).
    public func verifyContents() throws -> [String] {
        guard let index else { return [] }
        var faults = try index.database.mapRows("PRAGMA integrity_check") { row in row.text(0) ?? "" }
            .filter { $0 != "ok" }.map { "the index: \($0)" }
        // One statement, because a broker may change both tables between two.
        let (totals, counts) = ("FROM totals", "SELECT owner, count(*), sum(cost) FROM response GROUP BY owner")
        let differences = "(SELECT * \(totals) EXCEPT \(counts)) OR EXISTS (\(counts) EXCEPT SELECT * \(totals))"
        if try index.database.firstInteger("SELECT EXISTS \(differences)") != 0 {
            faults.append("the index: its totals are not those of its answers")
        }
        let entries = try index.database.mapRows("SELECT entry FROM response") { UInt64(bitPattern: $0.int64(0)) }
        let bodies = try? BodyFolder(folder.bodiesPath)
        for entry in entries {
            // A response evicted meanwhile is not a fault.
            guard let row = try index.body(of: entry) else { continue }
            guard let sum = row.sha256 else {
                if row.length > 0 { faults.append("answer \(entry) has no sum") }
                continue
            }
            var isWhole = false
            if let bytes = row.bytes {
                isWhole = bytes.count == row.length && SHA256.digest(of: bytes.span).hex == sum
            } else if let file = bodies?.open(sum) {
                isWhole = BodyFolder.digest(of: file, length: row.length) == sum
                close(file)
            }
            guard !isWhole, try index.body(of: entry) != nil else { continue }
            faults.append("the body of answer \(entry) is not what it was: \(sum)")
        }
        return faults
    }

    /// Deletes the contents of an unused cache.
    /// - Returns: Number of responses deleted.
    /// - Throws: `StoreError`; its kind shows whether a broker uses the cache.
    public static func clearUnusedCache(_ folder: CacheFolder) throws -> Int {
        guard try folder.checkExistingFolders() else { return 0 }
        try folder.prepareFolders()
        let lock = try folder.acquireLock()
        let count = (try? CacheReport(folder).totals().responseCount) ?? 0
        for suffix in ["", "-wal", "-shm", ".damaged"] { unsafe unlink(folder.databasePath + suffix) }
        let bodies = try BodyFolder(folder.bodiesPath)
        for file in try bodies.list() { bodies.remove(file.name) }
        withExtendedLifetime(lock) {}
        return count
    }
}
