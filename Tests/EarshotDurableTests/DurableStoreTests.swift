import EarshotDisk
import EarshotLoop
import Foundation
import LibCrypto
import SQLite
import Testing

@testable import EarshotDurable

/// Durable requests on disk: recovery in a new store after each kind of end.
final class DurableStoreTests {
    private let folder: DurableFolder
    private let spool: String

    init() throws {
        let root = NSTemporaryDirectory() + "/durable-\(UUID().uuidString)"
        folder = DurableFolder(root)
        spool = root + "/spool"
        try folder.prepareFolders()
        try FileManager.default.createDirectory(atPath: spool, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: folder.path) }

    private struct Life {
        var hasRows: Bool?
        var rows: [DurableRow] = []
        var stored: [UInt64] = []
        var refused: [UInt64: Bool] = [:]
        var recorded: [UInt64: Bool] = [:]
        var read: [UInt64: DurableStoredResult] = [:]
        var reopened: [UInt64: [UInt8]?] = [:]
        var missing: [UInt64] = []
        var reportedFaults: [DurableFault] = []
        var foreign: [String] = []

        mutating func take(_ answers: [DurableAnswer]) {
            for answer in answers {
                switch answer {
                case .tableOpened(_, let hasRows): self.hasRows = hasRows
                case .rows(let found): rows += found
                case .stored(let id): stored.append(id)
                case .refused(let id, let isFull): refused[id] = isFull
                case .resultRecorded(let id, let isStored): recorded[id] = isStored
                case .resultRead(let id, let reading?): read[id] = reading
                case .resultRead(let id, nil): missing.append(id)
                case .reopened(let id, let head): reopened[id] = .some(head)
                case .fault(let fault): reportedFaults.append(fault)
                case .tableIncompatible(let words): foreign.append(words)
                }
            }
        }
    }

    /// Executes requests in a new store.
    private func life(_ requests: [DurableRequest] = []) throws -> Life {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        store.submit(.rows(after: nil, principal: nil))
        for request in requests { store.submit(request) }
        store.finish()
        var life = Life()
        life.take(store.answers.takeAll())
        return life
    }

    private func head(_ id: UInt64) -> [UInt8] { Array("FETCH h \(id) http://a/\n".utf8) }

    private func store(_ ids: ClosedRange<UInt64>) -> [DurableRequest] {
        ids.map { .store(id: $0, principal: nil, acceptedAt: Int64($0) * 10, head: head($0)) }
    }

    private func end(_ body: [UInt8]?, length: Int? = nil, sum: String? = nil) -> DurableEnd {
        DurableEnd(
            terminalHead: Array("RESULT h 1 200\n".utf8), bodyLength: length ?? body?.count ?? 0,
            sha256: sum ?? body.map { _ in String(repeating: "a", count: 64) }, body: body)
    }

    /// Digest of the bytes 7 and 8.
    private static let sum = SHA256.digest(of: [7, 8].span).hex

    /// Returns a request that records a result with a body file.
    private func recordFile(_ id: UInt64, _ content: [UInt8], sum: String = DurableStoreTests.sum) throws
        -> DurableRequest
    {
        let path = spool + "/" + UUID().uuidString
        try Data(content).write(to: URL(fileURLWithPath: path))
        return .storeResult(id: id, end(nil, length: content.count, sum: sum), file: unsafe open(path, O_RDONLY))
    }

    private var bodies: [String] { (try? FileManager.default.contentsOfDirectory(atPath: folder.bodiesPath)) ?? [] }

    @Test func `what is stored is there in the next life, in order, until it is forgotten`() throws {
        let first = try life(store(1...3))
        #expect(first.stored == [1, 2, 3] && first.hasRows == false)
        let next = try life([
            .deleteRequest(id: 2), .storeResult(id: 3, end([1, 2, 3]), file: nil), .deleteRequest(id: 77),
        ])
        #expect(next.rows.map(\.id) == [1, 2, 3])
        #expect(next.rows.map(\.fetchHead) == [head(1), head(2), head(3)])
        #expect(next.rows.map(\.acceptedAt) == [10, 20, 30])
        #expect(next.recorded == [3: true])
        let last = try life([.read(id: 3), .read(id: 1)])
        #expect(last.rows.map(\.id) == [1, 3] && last.hasRows == true)
        #expect(last.rows.map(\.hasEnded) == [false, true])
        #expect(last.read[3]?.body == .bytes([1, 2, 3]))
        #expect(last.missing == [1])
    }

    @Test func `a body that is a file is put back into the spool, and goes with the last row that has it`() throws {
        let first = try life(store(1...2) + [recordFile(1, [7, 8]), recordFile(2, [7, 8])])
        #expect(first.recorded == [1: true, 2: true])
        #expect(bodies == [Self.sum])
        let next = try life([.read(id: 1), .deleteRequest(id: 1)])
        #expect(next.rows.map(\.bodyFile) == [Self.sum, Self.sum] && next.rows.map(\.bodyFileBytes) == [2, 2])
        guard case .spoolFile(let part, Self.sum, 2)? = next.read[1]?.body else {
            Issue.record("no file: \(String(describing: next.read[1]))")
            return
        }
        #expect(try Data(contentsOf: URL(fileURLWithPath: spool + "/" + part)) == Data([7, 8]))
        #expect(bodies == [Self.sum])
        _ = try life([.deleteRequest(id: 2)])
        #expect(bodies.isEmpty)
    }

    @Test func `a failure that is deleted leaves its request, with room for the next result`() throws {
        var failed = end([1, 2, 3])
        failed.terminalHead = Array("FAILED h 1 http-status\nstatus: 404\n".utf8)
        _ = try life(store(1...3) + [.storeResult(id: 1, failed, file: nil), recordFile(2, [7, 8])])
        let next = try life([
            .reopen(id: 1, acceptedAt: 77), .reopen(id: 2, acceptedAt: 78), .reopen(id: 3, acceptedAt: 79),
            .read(id: 1),
            .reopen(id: 99, acceptedAt: 1),
        ])
        #expect(next.rows.map(\.resultSummary.failure) == ["http-status", nil, nil])
        #expect(next.reopened == [1: head(1), 2: head(2), 3: nil, 99: nil] && next.missing == [1])
        #expect(bodies.isEmpty)
        let last = try life([.storeResult(id: 1, end([4]), file: nil), .read(id: 1)])
        #expect(last.rows.map(\.acceptedAt) == [77, 78, 30] && last.rows.map(\.hasEnded) == [false, false, false])
        #expect(last.read[1]?.body == .bytes([4]))
        // The rows, without a result but one, have exactly this size.
        let row = head(1).count + 256
        #expect(try life([.setLimit(bytes: 4 * row + end([4]).terminalHead.count + 1)] + store(4...5)).stored == [4])
    }

    @Test func `beyond the limit requests are refused and results are not kept, until there is room`() throws {
        let answers = try life(
            [.setLimit(bytes: 1_000)] + store(1...4) + [
                .storeResult(id: 1, end([UInt8](repeating: 0, count: 900)), file: nil), try recordFile(2, [1, 2, 3]),
                .deleteRequest(id: 1), .store(id: 5, principal: nil, acceptedAt: 1, head: head(5)),
            ])
        #expect(answers.stored == [1, 2, 3, 5])
        #expect(answers.refused == [4: true])
        #expect(answers.recorded == [1: false, 2: true])
        #expect(try life().rows.map(\.id) == [2, 3, 5])
    }

    @Test func `a result whose file is short or gone is fetched again`() throws {
        let other = SHA256.digest(of: [9].span).hex
        _ = try life(store(1...2) + [recordFile(1, [7, 8]), recordFile(2, [9], sum: other)])
        try FileManager.default.removeItem(atPath: folder.bodiesPath + "/" + Self.sum)
        try Data([1]).write(to: URL(fileURLWithPath: folder.bodiesPath + "/without-a-row"))
        let next = try life()
        #expect(next.rows.map(\.hasEnded) == [false, true])
        #expect(bodies == [other])
    }

    @Test func `a damaged table is moved aside and begun anew`() throws {
        _ = try life(store(1...2))
        try Data(repeating: 7, count: 8_192).write(to: URL(fileURLWithPath: folder.databasePath))
        try? FileManager.default.removeItem(atPath: folder.databasePath + "-wal")
        let next = try life(store(5...5))
        #expect(next.reportedFaults.count == 1 && next.rows.isEmpty)
        #expect(next.stored == [5])
        let quarantinePath = try #require(damaged.first)
        #expect(damaged.count == 1 && next.reportedFaults.first?.details["moved-to"]?.contains(quarantinePath) == true)
        #expect(
            try Data(contentsOf: URL(filePath: "\(quarantinePath)/requests.sqlite")) == Data(repeating: 7, count: 8_192)
        )
        #expect(try life().rows.map(\.id) == [5])
    }

    /// Folders of data moved aside.
    private var damaged: [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        return names.filter { $0.hasPrefix("damaged-") }.map { "\(folder.path)/\($0)" }
    }

    @Test(arguments: [true, false])
    func `bodies whose table is damaged or gone are kept beside it`(isDamaged: Bool) throws {
        _ = try life(store(1...1) + [recordFile(1, [7, 8])])
        for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: folder.databasePath + suffix) }
        if isDamaged { try Data(repeating: 7, count: 8_192).write(to: URL(filePath: folder.databasePath)) }
        let next = try life(store(5...5))
        #expect(next.reportedFaults.count == 1 && next.rows.isEmpty && next.stored == [5])
        let quarantinePath = try #require(damaged.first)
        #expect(damaged.count == 1)
        #expect(try Data(contentsOf: URL(filePath: "\(quarantinePath)/bodies/\(Self.sum)")) == Data([7, 8]))
        #expect(bodies.isEmpty)
        let last = try life([recordFile(5, [7, 8])])
        #expect(last.recorded == [5: true] && bodies == [Self.sum] && damaged.count == 1)
    }

    @Test func `a table of a newer version or of another program is left as it is`() throws {
        _ = try life(store(1...1) + [recordFile(1, [7, 8])])
        let changes = [("PRAGMA user_version = 4", "newer"), ("PRAGMA user_version = 0", "another program")]
        for (change, word) in changes {
            try execute(change)
            let next = try life(store(5...5) + [.deleteRequest(id: 1), .read(id: 1)])
            #expect(next.foreign.count == 1 && next.foreign.first?.contains(word) == true)
            #expect(next.foreign.first?.contains(folder.databasePath) == true)
            #expect(next.refused == [5: false] && next.missing == [1])
            #expect(bodies == [Self.sum] && damaged.isEmpty)
        }
        try execute("PRAGMA user_version = 3")
        #expect(try life().rows.map(\.bodyFile) == [Self.sum])
    }

    @Test func `a row with an impossible length does not take the room of others`() throws {
        _ = try life(store(1...4) + [recordFile(2, [7, 8]), .storeResult(id: 3, end([9]), file: nil)])
        try execute("UPDATE request SET length = 9223372036854775807")
        let next = try life([.setLimit(bytes: 4_096)] + store(5...5) + [.read(id: 3)])
        #expect(next.stored == [5] && next.reportedFaults.isEmpty)
        #expect(next.rows.map(\.hasEnded) == [false, false, true, false], "a body file has another length")
        #expect(next.read[3]?.body == .bytes([9]))
    }

    @Test func `a statement that fails is no damage`() throws {
        _ = try life(store(1...1) + [recordFile(1, [7, 8])])
        try execute("ALTER TABLE request RENAME COLUMN accepted TO renamed")
        let next = try life(store(5...5))
        #expect(next.reportedFaults.count == 1 && next.refused == [5: false])
        #expect(bodies == [Self.sum] && damaged.isEmpty)
        try execute("ALTER TABLE request RENAME COLUMN renamed TO accepted")
        #expect(try life().rows.map(\.bodyFile) == [Self.sum])
    }

    private func execute(_ statement: String) throws {
        try Database(folder.databasePath).execute(statement)
    }

    @Test func `a table that was removed beneath it keeps nothing more and says so`() throws {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        store.submit(.store(id: 1, principal: nil, acceptedAt: 1, head: head(1)))
        store.finish()
        try FileManager.default.moveItem(atPath: folder.databasePath, toPath: folder.databasePath + ".away")
        store.submit(.store(id: 2, principal: nil, acceptedAt: 1, head: head(2)))
        store.finish()
        try FileManager.default.moveItem(atPath: folder.databasePath + ".away", toPath: folder.databasePath)
        store.submit(.store(id: 3, principal: nil, acceptedAt: 1, head: head(3)))
        store.finish()
        var life = Life()
        life.take(store.answers.takeAll())
        #expect(life.stored == [1, 3] && life.refused == [2: false])
        #expect(
            life.reportedFaults.count == 1
                && life.reportedFaults.first?.details["error"]?.contains("was removed") == true)
    }

    @Test func `one process has it at a time`() throws {
        let lock = try folder.acquireLock()
        #expect(throws: StoreError.self) { _ = try folder.acquireLock() }
        withExtendedLifetime(lock) {}
    }

    @Test func `a disk that fails refuses what is new, keeps what is there, and works on when there is room`() throws {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        store.submit(.store(id: 1, principal: nil, acceptedAt: 1, head: head(1)))
        store.finish()
        let other = try DurableTable(folder.databasePath)
        var life = Life()
        // A write transaction of another connection makes writes fail, like a disk error.
        try other.transaction {
            try other.insert(99, principal: nil, acceptedAt: 1, head: head(99))
            store.submit(.store(id: 2, principal: nil, acceptedAt: 1, head: head(2)))
            store.submit(.deleteRequest(id: 1))
            store.submit(.storeResult(id: 1, end([1]), file: nil))
            store.finish()
            try other.delete(99)
        }
        life.take(store.answers.takeAll())
        #expect(life.refused == [2: false] && life.recorded == [1: false] && life.stored == [1])
        #expect(life.reportedFaults.count == 1)
        store.submit(.store(id: 3, principal: nil, acceptedAt: 1, head: head(3)))
        store.finish()
        #expect(try other.rows(after: nil).map(\.id) == [3], "what was forgotten goes with the next change")
    }

    @Test func `a deletion that the disk rejects is tried again, also if nothing else is written`() throws {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        store.submit(.store(id: 1, principal: nil, acceptedAt: 1, head: head(1)))
        store.finish()
        let other = try DurableTable(folder.databasePath)
        try other.transaction {
            try other.insert(99, principal: nil, acceptedAt: 1, head: head(99))
            store.submit(.deleteRequest(id: 1))
            store.finish()
            #expect(try other.rows(after: nil).map(\.id) == [1, 99])
            try other.delete(99)
        }
        store.finish()
        #expect(try other.rows(after: nil).map(\.id) == [], "the next broker does not deliver it again")
    }

    @Test func `a row states code, status and attempts of its result`() throws {
        var failed = end(nil)
        failed.terminalHead = Array(
            "FAILED h 1 http-status\nseq: 7\nstatus: 404\nurl: http://a/\nattempts: 3\n\nstatus: 9\nattempts: 9\n".utf8)
        _ = try life(store(1...3) + [.storeResult(id: 1, failed, file: nil), .storeResult(id: 2, end([1]), file: nil)])
        let rows = try life().rows
        #expect(rows.map(\.resultSummary.failure) == ["http-status", nil, nil])
        #expect(rows.map(\.resultSummary.status) == [404, 200, nil])
        #expect(rows.map(\.resultSummary.attempts) == [3, 0, 0])
    }

    private func slices(_ store: DurableStore, principal: String? = nil) -> [[DurableRow]] {
        var slices: [[DurableRow]] = []
        repeat {
            store.submit(.rows(after: slices.last?.last?.id, principal: principal))
            store.finish()
            for case .rows(let rows) in store.answers.takeAll() { slices.append(rows) }
        } while slices.last?.isEmpty == false
        return slices
    }

    @Test func `rows are read in slices of a bounded number and size`() throws {
        _ = try life(store(1...600))
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        #expect(slices(store).map(\.count) == [256, 256, 88, 0])
        for id in 1...600 as ClosedRange<UInt64> { store.submit(.deleteRequest(id: id)) }
        let long = [UInt8](repeating: 7, count: 100 << 10)
        for id in 1...7 as ClosedRange<UInt64> {
            store.submit(.store(id: id, principal: nil, acceptedAt: 1, head: long))
        }
        let found = slices(store)
        #expect(found.map(\.count) == [3, 3, 1, 0])
        #expect(found.flatMap(\.self).map(\.id) == Array(1...7))
    }

    @Test func `rows of one principal are read without those of others`() throws {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        for (id, principal) in [(1, "uid:1"), (2, nil), (3, "uid:2"), (4, "uid:1")] as [(UInt64, String?)] {
            store.submit(.store(id: id, principal: principal, acceptedAt: 1, head: head(id)))
        }
        #expect(slices(store, principal: "uid:1").map { $0.map(\.id) } == [[1, 4], []])
        #expect(slices(store).map { $0.map(\.id) } == [[1, 2, 3, 4], []])
    }

    @Test func `a row that is forgotten is not read, though the disk rejects its deletion`() throws {
        let store = try DurableStore(folder, lock: try folder.acquireLock(), spool: spool)
        for request in self.store(1...2) { store.submit(request) }
        store.finish()
        _ = store.answers.takeAll()
        let other = try DurableTable(folder.databasePath)
        try other.transaction {
            try other.insert(99, principal: nil, acceptedAt: 1, head: head(99))
            store.submit(.deleteRequest(id: 1))
            store.submit(.deleteRequest(id: 2))
            store.submit(.rows(after: nil, principal: nil))
            store.finish()
            try other.delete(99)
        }
        var life = Life()
        life.take(store.answers.takeAll())
        #expect(life.rows.isEmpty && life.reportedFaults.count == 1)
    }

    @Test func `a row states the bytes of its result`() throws {
        _ = try life(store(1...3) + [.storeResult(id: 1, end([1, 2, 3]), file: nil), recordFile(2, [7, 8])])
        #expect(
            try life().rows.map(\.resultBytes) == [end(nil).terminalHead.count + 3, end(nil).terminalHead.count + 2, 0])
    }
}
