import EarshotCluster
import EarshotCore
import Testing

/// Keys of flights and origins, and the secrets that nodes make them with.
@Suite struct ClusterKeysTests {
    private let keys = ClusterKeys(secret: Array(repeating: 7, count: 32))

    @Test func `keys depend on secret, purpose and content alone`() {
        let same = ClusterKeys(secret: Array(repeating: 7, count: 32))
        let other = ClusterKeys(secret: Array(repeating: 8, count: 32))
        let name = "https://example.com"
        #expect(keys.originKey(name: name) == same.originKey(name: name))
        #expect(keys.originKey(name: name) != other.originKey(name: name))
        #expect(keys.originKey(name: name) != keys.flightKey(identity: Array(name.utf8)))
        #expect(keys.compatibilityCode(publicKey: "a") == same.compatibilityCode(publicKey: "a"))
        #expect(keys.compatibilityCode(publicKey: "a") != other.compatibilityCode(publicKey: "a"))
        #expect(keys.compatibilityCode(publicKey: "a") != keys.compatibilityCode(publicKey: "b"))
    }

    @Test func `keys are the same in each process and version`() {
        #expect(
            keys.flightKey(identity: Array("GET https://example.com/".utf8)).description
                == "8d37392aaad8a73778b66d2727af4c4c")
    }

    @Test func `neither a password nor a secret is printed`() {
        var options = EngineOptions(
            location: .servers([]), cluster: "test", keys: ClusterKeys(secret: Array("hidden-secret-16".utf8)),
            publicKey: "", description: "")
        options.login = EngineOptions.Login(user: "bus", password: "hidden")
        var dumped = ""
        dump(options, to: &dumped)
        let first = Int(UInt8(ascii: "h") ^ 0x36)
        for text in ["\(options)", String(reflecting: options), dumped, "\(options.login as Any)"] {
            #expect(!text.contains("hidden") && !text.contains("\(first)"), "\(text)")
        }
        #expect("\(EngineOptions.Login(user: "bus", password: "x"))" == "login of bus")
    }

    @Test func `a fencing token has at most 16 digits that Lua can count`() {
        #expect(FencingToken("9007199254740991")?.description == "9007199254740991")
        #expect(FencingToken("9007199254740992") == nil)
        #expect(FencingToken("0") == nil)
    }

    @Test func `a key is its text`() {
        let key = keys.originKey(name: "a")
        #expect(ClusterKey(key.description) == key)
        #expect(ClusterKey("") == nil)
        #expect(ClusterKey(broker: 0xab, flight: 2).description == "00000000000000ab0000000000000002")
    }
}
