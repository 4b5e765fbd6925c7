import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The store of partial bodies in isolation: each event in each phase of a part, and the limits.
struct PartStoreTests {
    /// Phase of the part "old" before an event.
    enum Phase: CaseIterable {
        case absent
        /// Kept for flight 1.
        case kept
        /// Set aside under the key "k".
        case aside
    }

    enum Event: CaseIterable {
        case keep, take, setAside, reclaim, expire, evictOldest
    }

    private static func key(_ name: String = "k") throws -> FlightKey {
        let url = try FetchURL("http://a.example/\(name)", hosts: nil)
        let request = HTTPRequest(method: .get, url: url, fields: HeaderFields(), route: Route())
        return FlightKey(request, redirect: .follow, partition: nil, alone: nil)
    }

    private static func part(_ file: String, bytes: Int = 100) -> KeptPart {
        let body = PartialBody(keptBytes: Int64(bytes), totalBytes: nil, response: HeaderFields(), now: 0)
        let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
        return KeptPart(file: file, body: body, fields: HeaderFields(), generation: attempt)
    }

    private static func store(kept: Int = 10, aside: Int = 10, asideBytes: Int = 1_000) -> PartStore {
        PartStore(limits: PartStore.Limits(kept: kept, aside: aside, asideBytes: asideBytes))
    }

    private static func store(_ phase: Phase) throws -> PartStore {
        var store = store()
        switch phase {
        case .absent: break
        case .kept: _ = store.keep(part("old"), for: 1)
        case .aside: _ = try store.setAside(part("old"), under: key())
        }
        return store
    }

    /// Files returned by the event, then files kept, then files set aside.
    private static func expected(_ event: Event, _ phase: Phase) -> [[String]] {
        switch (event, phase) {
        case (.keep, .absent): [[], ["new"], []]
        case (.keep, .kept): [["old"], ["new"], []]
        case (.keep, .aside): [[], ["new"], ["old"]]
        case (.take, .kept): [["old"], [], []]
        case (.setAside, .absent): [[], [], ["new"]]
        case (.setAside, .kept): [[], ["old"], ["new"]]
        case (.setAside, .aside): [["old"], [], ["new"]]
        case (.reclaim, .aside): [[], ["old"], []]
        case (.expire, .aside), (.evictOldest, .aside): [["old"], [], []]
        case (.take, .absent), (.reclaim, .absent), (.expire, .absent), (.evictOldest, .absent): [[], [], []]
        case (.reclaim, .kept), (.expire, .kept), (.evictOldest, .kept): [[], ["old"], []]
        case (.take, .aside): [[], [], ["old"]]
        }
    }

    private func files(_ parts: [KeptPart?]) -> [String] { parts.compactMap { $0?.file } }

    @Test(arguments: Event.allCases, Phase.allCases)
    func `each event in each phase leaves the parts where the diagram says`(event: Event, phase: Phase) throws {
        var store = try Self.store(phase)
        let returned =
            switch event {
            case .keep: files([store.keep(Self.part("new"), for: 1)])
            case .take: files([store.take(1)])
            case .setAside: try files(store.setAside(Self.part("new"), under: Self.key()).deleted)
            case .reclaim: try files([store.reclaim(Self.key(), for: 1)])
            case .expire: files([store.expire(1)])
            case .evictOldest: files([store.evictOldest()])
            }
        let found = [returned, store.kept.values.map(\.file), store.aside.values.map(\.part.file)]
        #expect(found == Self.expected(event, phase))
        #expect(store.bytes == 100 * (store.kept.count + store.aside.count))
        #expect(store.isEmpty == (store.bytes == 0))
        #expect(store.checkInvariants() == [])
    }

    @Test func `a flight beyond the limit keeps no part, one that has a part replaces it`() {
        var store = Self.store(kept: 1)
        #expect(store.keep(Self.part("a"), for: 1) == nil)
        #expect(store.keep(Self.part("b"), for: 2)?.file == "b")
        #expect(store.keep(Self.part("c"), for: 1)?.file == "a")
        #expect(store.hasPart(of: 1) && !store.hasPart(of: 2))
        #expect(store.checkInvariants() == [])
    }

    @Test(arguments: [
        (0, []), (700, []), (701, ["a"]), (901, ["a", "b"]), (1_000, ["a", "b"]), (1_001, ["new"]),
    ])
    func `parts set aside are evicted by age until the new one fits`(bytes: Int, deleted: [String]) throws {
        var store = Self.store(aside: 3)
        _ = try store.setAside(Self.part("a", bytes: 200), under: Self.key("a"))
        _ = try store.setAside(Self.part("b", bytes: 100), under: Self.key("b"))
        let found = try store.setAside(Self.part("new", bytes: bytes), under: Self.key("new")).deleted
        #expect(files(found) == deleted)
        #expect(store.checkInvariants() == [])
    }

    @Test func `beyond the number of parts set aside the oldest is evicted`() throws {
        var store = Self.store(aside: 2)
        var deleted: [String] = []
        for file in ["a", "b", "c", "d"] {
            deleted += try files(store.setAside(Self.part(file), under: Self.key(file)).deleted)
        }
        #expect(deleted == ["a", "b"])
        #expect(store.checkInvariants() == [])
    }

    @Test func `with a limit of none nothing is set aside`() throws {
        var store = Self.store(aside: 0)
        let (serial, deleted) = try store.setAside(Self.part("a"), under: Self.key())
        #expect(serial == nil && files(deleted) == ["a"] && store.isEmpty)
    }

    @Test func `an expiry timer ends its own part alone`() throws {
        var store = Self.store()
        let first = try #require(store.setAside(Self.part("a"), under: Self.key()).serial)
        let second = try #require(store.setAside(Self.part("b"), under: Self.key()).serial)
        #expect(!store.isAside(first) && store.isAside(second))
        #expect(store.expire(first) == nil)
        #expect(store.expire(second)?.file == "b")
        #expect(store.isEmpty)
    }

    @Test func `sizes reported by workers never trap`() {
        var store = Self.store(asideBytes: .max)
        _ = store.keep(Self.part("a", bytes: .max), for: 1)
        _ = store.keep(Self.part("b", bytes: .max), for: 2)
        #expect(store.take(1)?.file == "a")
        #expect(store.bytes == .max)
    }

    @Test func `the checks see two parts in one file and a limit that was lowered`() {
        var store = Self.store()
        _ = store.keep(Self.part("a"), for: 1)
        _ = store.keep(Self.part("a"), for: 2)
        #expect(store.checkInvariants() == ["12: two parts share a file"])
        store.limits.kept = 1
        #expect(store.checkInvariants().contains("11: 2 flights have parts"))
    }
}
