import EarshotCluster
import EarshotCore
import Testing

@Suite struct ClusterKeysTests {
    private let keys = ClusterKeys(secret: Array(repeating: 7, count: 32))

    @Test func `keys depend on secret, purpose and content alone`() {
        let same = ClusterKeys(secret: Array(repeating: 7, count: 32))
        let other = ClusterKeys(secret: Array(repeating: 8, count: 32))
        let name = "https://example.com"
        #expect(keys.origin(name) == same.origin(name))
        #expect(keys.origin(name) != other.origin(name))
        #expect(keys.origin(name) != keys.flight(Array(name.utf8)))
        #expect(keys.check == same.check)
        #expect(keys.check != other.check)
    }

    @Test func `keys are the same in each process and version`() {
        #expect(keys.flight(Array("GET https://example.com/".utf8)).description == "8d37392aaad8a73778b66d2727af4c4c")
    }

    @Test func `a key is its text`() {
        let key = keys.origin("a")
        #expect(ClusterKey(key.description) == key)
        #expect(ClusterKey("") == nil)
        #expect(ClusterKey(broker: 0xab, flight: 2).description == "00000000000000ab0000000000000002")
    }
}
