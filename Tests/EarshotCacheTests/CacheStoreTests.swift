import EarshotDisk
import EarshotHTTP
import EarshotLoop
import Foundation
import LibCrypto
import Testing

@testable import EarshotCache

/// Persistent cache: storage, eviction, and recovery after an abrupt end.
final class CacheStoreTests {
    private let folder: CacheFolder
    private let spool: String
    private let salt: [UInt8]

    init() throws {
        let root = NSTemporaryDirectory() + "/cache-\(UUID().uuidString)"
        folder = CacheFolder(root)
        spool = root + "/spool"
        try folder.prepareFolders()
        try FileManager.default.createDirectory(atPath: spool, withIntermediateDirectories: true)
        salt = try folder.readSalt()
    }

    deinit { try? FileManager.default.removeItem(atPath: folder.path) }

    /// Executes requests in a new store.
    /// - Returns: Its results.
    private func life(limit: Int = 1 << 30, _ requests: [CacheRequest]) throws -> [CacheAnswer] {
        let store = try CacheStore(folder, lock: try folder.acquireLock(), spool: spool, limit: limit)
        for request in requests { store.submit(request) }
        store.finish()
        return store.answers.takeAll()
    }

    private func key(_ path: String, credential: String? = nil) throws -> CacheKey {
        var request = HTTPRequest(url: try FetchURL("http://o.test/\(path)"))
        if let credential { try request.fields.append("authorization", credential) }
        return CacheKey(request)
    }

    private func item(
        _ path: String, entry: UInt64, body: [UInt8]?, length: Int? = nil, sum: String? = nil, credential: String? = nil
    ) throws -> CacheItem {
        let key = try key(path, credential: credential)
        let response = StoredResponse(
            status: 200, fields: HeaderFields(lines: Array("cache-control: max-age=9".utf8)), requestTime: 1,
            responseTime: 2, varyKey: VaryKey(canonicalFields: []))
        return CacheItem(
            entry: entry, key: CacheDigest(key, salt: salt), url: key.url.description,
            isPrivate: !key.trustScope.isCredentialFree, variant: [], response: response,
            length: length ?? body?.count ?? 0,
            sha256: sum ?? body.map { SHA256.digest(of: $0.span).hex }, body: body)
    }

    /// Returns an open file with this content, and its digest.
    private func file(_ content: [UInt8]) throws -> (descriptor: Int32, sum: String) {
        let path = spool + "/" + UUID().uuidString
        try Data(content).write(to: URL(fileURLWithPath: path))
        return (unsafe open(path, O_RDONLY), SHA256.digest(of: content.span).hex)
    }

    private func found(_ answers: [CacheAnswer]) -> [UInt64] {
        answers.flatMap { answer -> [UInt64] in
            guard case .variantsFound(_, let items) = answer else { return [] }
            return items.map(\.entry)
        }
    }

    private func lookUp(_ path: String, credential: String? = nil) throws -> CacheRequest {
        .lookUp(ticket: 1, CacheDigest(try key(path, credential: credential), salt: salt))
    }

    private var bodies: [String] { (try? FileManager.default.contentsOfDirectory(atPath: folder.bodiesPath)) ?? [] }

    @Test func `what is stored is found in the next life, by its scope alone`() throws {
        _ = try life([.store(try item("a", entry: 1, body: [1, 2, 3], credential: "one"), file: nil)])
        let answers = try life([
            try lookUp("a", credential: "one"), try lookUp("a", credential: "two"), try lookUp("a"),
        ])
        #expect(found(answers) == [1])
        let written = try Data(contentsOf: URL(fileURLWithPath: folder.databasePath))
        #expect(written.range(of: Data("one".utf8)) == nil)
    }

    @Test func `an invalidation marks the responses for its URL in all scopes, and no others`() throws {
        let responses: [(path: String, credential: String?)] = [("a", nil), ("a", "one"), ("a?b", nil), ("", nil)]
        let stores = try responses.enumerated().map { number, response in
            CacheRequest.store(
                try item(response.path, entry: UInt64(number), body: [1], credential: response.credential), file: nil)
        }
        let url = CacheDigest(url: try key("a").url.description, salt: salt)
        let lookUps = try responses.map { try lookUp($0.path, credential: $0.credential) }
        let marked = try life(stores + [.invalidate([url])] + lookUps).flatMap { answer -> [Bool] in
            guard case .variantsFound(_, let items) = answer else { return [] }
            return items.map(\.response.isInvalidated)
        }
        #expect(marked == [true, true, false, false])
    }

    @Test func `the same key and variant is kept once, and of more variants than eight the last`() throws {
        var requests: [CacheRequest] = []
        for number in 1...20 {
            var item = try item("a", entry: UInt64(number), body: [1])
            item.variant = number <= 2 ? [] : [UInt8](repeating: UInt8(number), count: 32)
            requests.append(.store(item, file: nil))
        }
        #expect(found(try life(requests + [try lookUp("a")])).sorted() == Array(13...20))
    }

    @Test func `a body that is a file is linked, and goes with the last row that names it`() throws {
        let content = [UInt8](repeating: 7, count: 100_000)
        let (first, sum) = try file(content)
        let (second, _) = try file(content)
        let answers = try life([
            .store(try item("a", entry: 1, body: nil, length: content.count, sum: sum), file: first),
            .store(try item("b", entry: 2, body: nil, length: content.count, sum: sum), file: second),
            .discard(entry: 1), .read(ticket: 1, entry: 2, range: nil),
        ])
        #expect(bodies == [sum])
        guard case .body(_, .spoolFile(let part, sum, content.count))? = answers.last else {
            Issue.record("\(answers)")
            return
        }
        #expect(try [UInt8](Data(contentsOf: URL(fileURLWithPath: spool + "/" + part))) == content)
        _ = try life([.discard(entry: 2)])
        #expect(bodies == [])
        #expect(FileManager.default.fileExists(atPath: spool + "/" + part), "what was lent stays")
    }

    @Test(
        "a range of a body is read as bytes if it is short, and as a file of its own otherwise",
        arguments: [0..<1, 99_990..<100_000, 1..<65_537, 0..<100_000, 7..<90_000, 99_999..<100_001])
    func ranges(_ range: Range<Int>) throws {
        let content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
        let (descriptor, sum) = try file(content)
        let answers = try life([
            .store(try item("a", entry: 1, body: nil, length: content.count, sum: sum), file: descriptor),
            .read(ticket: 1, entry: 1, range: range),
        ])
        switch answers.last {
        case .body(_, .bytes(let bytes))?: #expect(range.count <= 65_536 && bytes == Array(content[range]))
        case .body(_, .spoolFile(let part, let digest, range.count))?:
            #expect(range.count > 65_536 && digest == SHA256.digest(of: Array(content[range]).span).hex)
            #expect(try [UInt8](Data(contentsOf: URL(fileURLWithPath: spool + "/" + part))) == Array(content[range]))
        case .body(_, .missing)?: #expect(range.upperBound > content.count)
        default: Issue.record("\(answers)")
        }
    }

    @Test func `rows without a file and files without a row are gone after a start`() throws {
        let content = [UInt8](repeating: 7, count: 100_000)
        let (descriptor, sum) = try file(content)
        _ = try life([
            .store(try item("a", entry: 1, body: nil, length: content.count, sum: sum), file: descriptor),
            .store(try item("b", entry: 2, body: [1]), file: nil),
        ])
        try FileManager.default.removeItem(atPath: folder.bodiesPath + "/" + sum)
        try Data([1]).write(to: URL(fileURLWithPath: folder.bodiesPath + "/" + String(repeating: "0", count: 64)))
        #expect(try CacheReport(folder).verifyContents().count == 1)
        #expect(found(try life([try lookUp("a"), try lookUp("b")])) == [2])
        #expect(bodies == [])
        #expect(try CacheReport(folder).verifyContents() == [])
    }

    @Test func `what was used longest ago goes first`() throws {
        let requests = try (1...10).map { number -> CacheRequest in
            .store(try item("\(number)", entry: UInt64(number), body: [UInt8](repeating: 1, count: 10_000)), file: nil)
        }
        _ = try life(requests + [.recordUses([1, 2])])
        _ = try life(limit: 45_000, [])
        let left = try (1...10).flatMap { number in found(try life(limit: 45_000, [try lookUp("\(number)")])) }
        #expect(left == [1, 2, 9, 10])
        #expect(try CacheReport(folder).totals().costBytes <= 45_000)
    }

    @Test func `a damaged index is moved aside and begun anew`() throws {
        _ = try life([.store(try item("a", entry: 1, body: [1]), file: nil)])
        try Data(repeating: 0x2a, count: 10_000).write(to: URL(fileURLWithPath: folder.databasePath))
        let answers = try life([
            try lookUp("a"), .store(try item("b", entry: 2, body: [1]), file: nil), try lookUp("b"),
        ])
        #expect(found(answers) == [2])
        let reports = answers.count { if case .fault = $0 { true } else { false } }
        #expect(reports == 1)
        #expect(FileManager.default.fileExists(atPath: folder.databasePath + ".damaged"))
    }

    @Test func `a body that is not what it was is told`() throws {
        let content = [UInt8](repeating: 7, count: 100_000)
        let (descriptor, sum) = try file(content)
        _ = try life([.store(try item("a", entry: 1, body: nil, length: content.count, sum: sum), file: descriptor)])
        let path = folder.bodiesPath + "/" + sum
        try Data([UInt8](repeating: 8, count: content.count)).write(to: URL(fileURLWithPath: path))
        #expect(try CacheReport(folder).verifyContents().count == 1)
    }

    @Test func `one process has a cache, and nobody clears it meanwhile`() throws {
        let lock = try folder.acquireLock()
        #expect(throws: StoreError.self) { _ = try folder.acquireLock() }
        #expect(throws: StoreError.self) { _ = try CacheReport.clearUnusedCache(folder) }
        withExtendedLifetime(lock) {}
    }
}
