import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The store of partial bodies in isolation.
@Suite struct PartStoreTests {
    private static func part(_ file: String, bytes: Int = 100) -> KeptPart {
        let body = PartialBody(keptBytes: Int64(bytes), totalBytes: nil, response: HeaderFields(), now: 0)
        let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
        return KeptPart(file: file, principal: 0, body: body, fields: HeaderFields(), generation: attempt)
    }

    @Test func `a part has a place until it is taken`() {
        var store = PartStore()
        store.keepPart(Self.part("a"), for: 2)
        store.keepPart(Self.part("b", bytes: 30), for: 1)
        #expect(store.bytes == 130 && store.hasPart(of: 1))
        #expect(store.take(2)?.file == "a")
        #expect(store.take(1)?.file == "b")
        #expect(store.take(1) == nil)
        #expect(store.isEmpty && store.bytes == 0 && store.checkInvariants() == [])
    }

    @Test func `two parts of one file violate an invariant`() {
        var store = PartStore()
        store.keepPart(Self.part("a"), for: 1)
        store.keepPart(Self.part("a"), for: 2)
        #expect(store.checkInvariants() == ["12: two parts share a file"])
    }
}
