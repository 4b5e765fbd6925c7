import EarshotDisk
import EarshotHTTP
import EarshotLoop
import Foundation
import LibCrypto
import Testing

@testable import EarshotCache

/// Parts of the cache: eviction begins with the owner of the largest one.
final class CacheShareTests {
    private let folder: CacheFolder
    private let salt: [UInt8]
    private let body = [UInt8](repeating: 1, count: 10_000)
    private var lastEntry: UInt64 = 0

    init() throws {
        folder = CacheFolder(NSTemporaryDirectory() + "/cache-\(UUID().uuidString)")
        try folder.prepareFolders()
        salt = try folder.readSalt()
    }

    deinit { try? FileManager.default.removeItem(atPath: folder.path) }

    /// Executes requests in a new store, which opens the index and closes it.
    private func life(limit: Int, _ requests: [CacheRequest] = []) throws {
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: folder.path, limit: limit)
        for request in requests { store.submit(request) }
        store.finish()
    }

    /// Requests to store responses of an owner, whose names begin with it.
    private func stores(_ owner: String, _ numbers: ClosedRange<Int>, body: [UInt8]? = nil) throws -> [CacheRequest] {
        let body = body ?? self.body
        return try numbers.map { number in
            let url = try FetchURL("http://o.test/\(owner)/\(number)")
            let response = StoredResponse(
                status: 200, fields: HeaderFields(lines: []), requestTime: 1, responseTime: 2,
                varyKey: VaryKey(canonicalFields: []))
            lastEntry += 1
            let item = CacheItem(
                entry: lastEntry, key: CacheDigest(CacheKey(HTTPRequest(url: url)), salt: salt), url: url.description,
                isPrivate: false, variant: [], response: response, length: body.count,
                sha256: SHA256.digest(of: body.span).hex, body: body, owner: owner)
            return .store(item, file: nil)
        }
    }

    /// Stored responses of an owner, by their numbers.
    private func kept(_ owner: String) throws -> [Int] {
        var numbers: [Int] = []
        try CacheReport(folder).forEachResponse(now: 3) { line in
            let parts = line.url.split(separator: "/")
            if parts.count == 4, parts[2] == owner, let number = Int(parts[3]) { numbers.append(number) }
        }
        #expect(try CacheReport(folder).verifyContents() == [])
        return numbers.sorted()
    }

    @Test func `a user who fills the cache evicts its own responses`() throws {
        try life(limit: 200_000, try stores("victim", 1...3) + stores("root", 1...2) + stores("flood", 1...100))
        #expect(try kept("victim") == [1, 2, 3])
        #expect(try kept("root") == [1, 2])
        let flood = try kept("flood")
        #expect(flood == Array((101 - flood.count)...100))
        #expect((10...14).contains(flood.count))
    }

    @Test func `the parts are known after a start`() throws {
        try life(limit: 1 << 30, try stores("flood", 1...30) + stores("victim", 1...3))
        try life(limit: 100_000)
        #expect(try kept("victim") == [1, 2, 3])
        try life(limit: 100_000, try stores("flood", 31...60))
        #expect(try kept("victim") == [1, 2, 3])
        #expect(try kept("flood").last == 60)
        try life(limit: 100_000, try stores("victim", 1...3))
        #expect(try kept("victim") == [1, 2, 3], "a replaced response counts once")
    }

    @Test func `equal users keep equal parts`() throws {
        try life(limit: 1 << 30, try stores("a", 1...50) + stores("b", 1...50) + stores("c", 1...2))
        try life(limit: 200_000)
        let (first, second) = (try kept("a"), try kept("b"))
        #expect(abs(first.count - second.count) <= 1)
        #expect(first.count + second.count >= 14)
        #expect(try kept("c") == [1, 2])
    }

    @Test func `a response of another user for the same key counts for that user`() throws {
        try life(limit: 1 << 30, try stores("a", 1...1))
        var requests = try stores("a", 1...1)
        guard case .store(var item, nil) = requests[0] else { return }
        item.owner = "b"
        requests[0] = .store(item, file: nil)
        try life(limit: 1 << 30, requests)
        #expect(try kept("a") == [1])
        try life(limit: 0)
        #expect(try kept("a") == [])
    }

    @Test func `the largest part and its lead`() {
        var totals = CacheTotals()
        #expect(totals.largestOwner(by: \.costBytes) == nil)
        totals.add(CacheTotals.Usage(rowCount: 9, costBytes: 10), to: "a")
        #expect(totals.largestOwner(by: \.costBytes).map { $0 == ("a", 10) } == true)
        totals.add(CacheTotals.Usage(rowCount: 1, costBytes: 30), to: "b")
        #expect(totals.largestOwner(by: \.costBytes).map { $0 == ("b", 20) } == true)
        #expect(totals.largestOwner(by: \.rowCount).map { $0 == ("a", 8) } == true)
        totals.add(CacheTotals.Usage(rowCount: -1, costBytes: -30), to: "b")
        #expect(totals.usageByOwner.keys.sorted() == ["a"])
        totals.removeOwner("a")
        #expect(totals == CacheTotals())
    }

    @Test func `no numbers of a damaged index make the totals trap`() {
        let numbers = [Int.min, .max, -1, 0, 1]
        for first in numbers {
            for second in numbers {
                var totals = CacheTotals()
                totals.add(CacheTotals.Usage(rowCount: second, costBytes: first), to: "a")
                totals.add(CacheTotals.Usage(rowCount: first, costBytes: second), to: "b")
                _ = totals.largestOwner(by: \.costBytes)
                for owner in ["a", "b"] { totals.removeOwner(owner) }
                #expect(totals == CacheTotals())
            }
        }
    }
}
