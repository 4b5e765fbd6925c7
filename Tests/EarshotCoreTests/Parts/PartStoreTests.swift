import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The store of partial bodies in isolation.
@Suite struct PartStoreTests {
    private static func part(_ file: String, bytes: Int = 100) -> KeptPart {
        let body = PartialBody(keptBytes: Int64(bytes), totalBytes: nil, response: HeaderFields(), now: 0)
        let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
        return KeptPart(file: file, body: body, fields: HeaderFields(), generation: attempt)
    }

    @Test func `a newer part replaces the one of the same flight, and take empties the place`() {
        var store = PartStore(limit: 10)
        #expect(store.keep(Self.part("old"), for: 1) == nil)
        #expect(store.keep(Self.part("new", bytes: 30), for: 1)?.file == "old")
        #expect(store.bytes == 30 && store.hasPart(of: 1))
        #expect(store.take(1)?.file == "new")
        #expect(store.take(1) == nil)
        #expect(store.isEmpty && store.bytes == 0 && store.checkInvariants() == [])
    }

    @Test func `a part beyond the limit is returned, and a replacement is not`() {
        var store = PartStore(limit: 1)
        #expect(store.keep(Self.part("a"), for: 1) == nil)
        #expect(store.keep(Self.part("b"), for: 2)?.file == "b")
        #expect(store.keep(Self.part("c"), for: 1)?.file == "a")
        #expect(store.checkInvariants() == [])
    }

    @Test func `two parts of one file violate an invariant`() {
        var store = PartStore(limit: 2)
        _ = store.keep(Self.part("a"), for: 1)
        _ = store.keep(Self.part("a"), for: 2)
        #expect(store.checkInvariants() == ["12: two parts share a file"])
    }
}
