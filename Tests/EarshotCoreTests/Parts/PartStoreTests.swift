import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The store of partial bodies in isolation.
@Suite struct PartStoreTests {
    private static func part(_ file: String, bytes: Int = 100) -> KeptPart {
        let body = PartialBody(keptBytes: Int64(bytes), totalBytes: nil, response: HeaderFields(), now: 0)
        let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
        return KeptPart(spoolFile: file, principal: 0, body: body, responseFields: HeaderFields(), generation: attempt)
    }

    @Test func `a part has a place until it is taken`() {
        var store = PartStore()
        store.keepPart(Self.part("a"), for: 2)
        store.keepPart(Self.part("b", bytes: 30), for: 1)
        #expect(store.keptPartBytes == 130 && store.hasKeptPart(of: 1))
        #expect(store.removePart(of: 2)?.spoolFile == "a")
        #expect(store.removePart(of: 1)?.spoolFile == "b")
        #expect(store.removePart(of: 1) == nil)
        #expect(store.isEmpty && store.keptPartBytes == 0 && store.checkInvariants() == [])
    }

    @Test func `two parts of one file violate an invariant`() {
        var store = PartStore()
        store.keepPart(Self.part("a"), for: 1)
        store.keepPart(Self.part("a"), for: 2)
        #expect(store.checkInvariants() == ["12: two parts share a file"])
    }
}
