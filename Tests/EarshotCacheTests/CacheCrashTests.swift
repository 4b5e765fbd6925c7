import EarshotDisk
import EarshotHTTP
import EarshotLoop
import Foundation
import LibCrypto
import SQLite
import Testing

@testable import EarshotCache

/// The cache's files as a crash leaves them, at each of 80 points.
final class CacheCrashTests {
    private let root = NSTemporaryDirectory() + "/crash-\(UUID().uuidString)"
    private let salt = [UInt8](repeating: 1, count: 32)

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Requests of a step, and the identifiers that must be gone or invalid after it.
    private struct Step {
        var requests: [CacheRequest]
        var gone: Set<UInt64> = []
        var invalid: Set<UInt64> = []
    }

    private func url(_ number: UInt64) -> String { "http://o.test/\(number)" }

    private func item(_ number: UInt64) throws -> CacheItem {
        let key = CacheKey(HTTPRequest(url: try FetchURL(url(number))))
        let body = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 700)
        let response = StoredResponse(
            status: 200, fields: HeaderFields(lines: Array("cache-control: max-age=9".utf8)), requestTime: 1,
            responseTime: Int64(number), varyKey: VaryKey(canonicalFields: []))
        return CacheItem(
            entry: number, key: CacheDigest(key, salt: salt), url: url(number), isPrivate: false, variant: [],
            response: response, length: body.count, sha256: SHA256.digest(of: body.span).hex, body: body)
    }

    /// Returns the steps: each stores a response, some discard or invalidate an earlier one.
    private func steps() throws -> [Step] {
        try (UInt64(1)...80).map { number in
            var step = Step(requests: [.store(try item(number), file: nil)])
            if number % 7 == 0 {
                step.requests.append(.discard(entry: number - 3))
                step.gone.insert(number - 3)
            }
            if number % 11 == 0 {
                step.requests.append(.invalidate([CacheDigest(url: url(number - 5), salt: salt)]))
                step.invalid.insert(number - 5)
            }
            return step
        }
    }

    /// Opens a copy of the files, stores one more response, and returns the earlier ones.
    private func contents(of folder: CacheFolder) throws -> (items: [CacheItem], reportedFaults: [CacheFault]) {
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: root, limit: 1 << 30)
        let new = try item(1_000)
        store.submit(.store(new, file: nil))
        store.finish()
        let reportedFaults = store.answers.takeAll().compactMap { answer in
            if case .fault(let fault) = answer { fault } else { nil }
        }
        #expect(try CacheReport(folder).verifyContents() == [])
        var items: [CacheItem] = []
        try CacheIndex(folder.databasePath, isReadOnly: true).forEachItem { items.append($0) }
        #expect(items.first?.entry == new.entry, "it is the latest one")
        return (Array(items.dropFirst()), reportedFaults)
    }

    /// Copies the files of a cache while a process uses them, with a log of at most so many bytes.
    private func copy(_ folder: CacheFolder, logBytes: Int = .max) throws -> CacheFolder {
        let copy = CacheFolder(root + "/copy")
        try? FileManager.default.removeItem(atPath: copy.path)
        try copy.prepareFolders()
        for suffix in ["", "-wal"] {
            var data = try Data(contentsOf: URL(filePath: folder.databasePath + suffix))
            if suffix == "-wal" { data = data.prefix(logBytes) }
            try data.write(to: URL(filePath: copy.databasePath + suffix))
        }
        return copy
    }

    @Test func `no point of a crash brings back what was discarded or invalidated, or prevents a start`() throws {
        let folder = CacheFolder(root + "/cache")
        try folder.prepareFolders()
        let loop = try EventLoop()
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: root, limit: 1 << 30)
        var executed: UInt64 = 0
        _ = try loop.add(store.answers.descriptor, .readable) { _ in
            for case .variantsFound(let ticket, _) in store.answers.takeAll() { executed = ticket }
        }
        var gone: Set<UInt64> = []
        var invalid: Set<UInt64> = []
        var found = 0
        for (number, step) in zip(UInt64(1)..., try steps()) {
            for request in step.requests { store.submit(request) }
            gone.formUnion(step.gone)
            invalid.formUnion(step.invalid)
            store.submit(.lookUp(ticket: number, try item(number).key))
            try loop.run { executed == number }
            // A killed process leaves all that it wrote.
            let killed = try contents(of: try copy(folder))
            #expect(killed.reportedFaults.isEmpty)
            for item in killed.items {
                #expect(!gone.contains(item.entry) && item.response.isInvalidated == invalid.contains(item.entry))
            }
            found += killed.items.count
            // A power failure leaves a part of the log.
            let bytes = try Data(contentsOf: URL(filePath: folder.databasePath + "-wal")).count
            let torn = try copy(folder, logBytes: bytes * Int(number % 16) / 16 + Int(number))
            #expect(try contents(of: torn).reportedFaults.isEmpty)
        }
        #expect(found > 0)
        store.finish()
        #expect(try Set(contents(of: copy(folder)).items.map(\.entry)) == Set(1...80).subtracting(gone))
    }

    @Test func `an invalidation that the disk rejects is tried again, and nothing is found until it succeeds`() throws {
        let folder = CacheFolder(root + "/cache")
        try folder.prepareFolders()
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: root, limit: 1 << 30)
        func found(_ requests: [CacheRequest]) throws -> [[CacheItem]] {
            for request in requests { store.submit(request) }
            store.finish()
            return store.answers.takeAll().compactMap {
                if case .variantsFound(_, let items) = $0 { items } else { nil }
            }
        }
        let lookUps = try (UInt64(1)...3).map { CacheRequest.lookUp(ticket: $0, try item($0).key) }
        let stores = try (UInt64(1)...3).map { CacheRequest.store(try item($0), file: nil) }
        #expect(try found(stores + lookUps).map(\.count) == [1, 1, 1])
        let other = try CacheIndex(folder.databasePath)
        // A write transaction of another connection makes writes fail, like a disk error.
        try other.database.transaction {
            let key = CacheDigest(url: url(1), salt: salt)
            let answers = try found([.invalidate([key]), .discard(entry: 2)] + lookUps)
            #expect(answers.map(\.count) == [0, 0, 0])
        }
        let answers = try found(lookUps)
        #expect(answers.map(\.count) == [1, 0, 1])
        #expect(answers[0].first?.response.isInvalidated == true)
    }

    @Test func `all keys of a large index are read in steps, and what is stored meanwhile is among them`() throws {
        let folder = CacheFolder(root + "/cache")
        try folder.prepareFolders()
        let index = try CacheIndex(folder.databasePath)
        var items = try (UInt64(1)...20_000).map { number in
            var item = try item(number)
            item.body = []
            item.length = 0
            item.sha256 = nil
            return item
        }
        try index.database.transaction {
            for item in items { _ = try index.insert(item, useNumber: Int64(item.entry)) }
            var totals = CacheTotals()
            for item in items { totals.add(CacheTotals.Usage(rowCount: 1, costBytes: item.costBytes), to: item.owner) }
            try index.writeTotals(totals, changedFrom: CacheTotals())
        }
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: root, limit: 1 << 30)
        let new = try item(20_001)
        store.submit(.store(new, file: nil))
        store.submit(.discard(entry: 7))
        let loop = try EventLoop()
        var suffixes: Set<UInt64>?
        var gone: Set<UInt64> = []
        _ = try loop.add(store.answers.descriptor, .readable) { _ in
            for answer in store.answers.takeAll() {
                switch answer {
                case .indexOpened(let found): suffixes = found
                case .keysRemoved(let keys): gone.formUnion(keys.map(\.suffix))
                default: break
                }
            }
        }
        try loop.run { suffixes != nil }
        items.remove(at: 6)
        #expect(suffixes == Set((items + [new]).map(\.key.suffix)))
        #expect(try gone == [item(7).key.suffix])
        store.finish()
        #expect(try CacheReport(folder).verifyContents() == [])
    }
}
