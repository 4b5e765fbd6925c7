import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotGateway

/// Names, addresses and lookup of keys.
@Suite struct GatewayKeysTests {
    private func key(_ name: String, _ publicKey: String, expires: String? = nil) throws -> ClientKey {
        ClientKey(
            name: try #require(KeyName(name)), publicKey: publicKey,
            expiry: try expires.map { try #require(KeyExpiry($0)) })
    }

    @Test func `a key is found until it expires`() throws {
        let keys = GatewayKeys(
            secretKey: "s", clients: [try key("a", "A"), try key("b", "B", expires: "1970-01-02")])
        #expect(keys.client("A", at: .max)?.name.description == "a")
        #expect(keys.client("B", at: 86_399)?.name.description == "b")
        #expect(keys.client("B", at: 86_400) == nil)
        #expect(keys.client("C", at: 0) == nil)
        #expect(keys.nextExpiry(after: 0) == 86_400)
        #expect(keys.nextExpiry(after: 86_400) == nil)
    }

    @Test func `the broker hears of the principals of valid keys, in lines of bounded length`() throws {
        var keys = [try key("old", "O", expires: "1970-01-02"), try key("gpu", "G")]
        keys[1].role = .worker
        keys += try (0..<250).map { try key(String(repeating: "n", count: 57) + "\(100 + $0)", "P\($0)") }
        let names = GatewayKeys(secretKey: "s", clients: keys).principals(at: 86_400).map(\.description)
        #expect(names.count == 250)
        #expect(names.allSatisfy { $0.hasPrefix("key:nnn") })
        let lines = GatewayProcess.principalLines(of: names.compactMap { PrincipalName($0) })
        #expect(lines.count == 3)
        #expect(lines.last == "keys-end")
        #expect(lines.dropLast().flatMap { $0.split(separator: " ").dropFirst() }.map { String($0) } == names)
        #expect(lines.allSatisfy { $0.utf8.count < LineChannel.maximumLineBytes })
    }

    @Test func `names are those of principals`() {
        #expect(KeyName("laptop")?.principal.description == "key:laptop")
        #expect(KeyName(String(repeating: "a", count: 60)) != nil)
        for text in ["", String(repeating: "a", count: 61), "a b", "a\"b", "a/b", "ü", "a\n"] {
            #expect(KeyName(text) == nil, "\(text)")
        }
    }

    @Test func `the name of a cluster is that of a principal`() {
        #expect(KeyName(cluster: "shop")?.principal.description == "node:shop")
        let longest = String(repeating: "a", count: 32)
        #expect(KeyName(cluster: longest)?.principal.description == "node:\(longest)")
        for text in ["", "a b", "a/b"] { #expect(KeyName(cluster: text) == nil, "\(text)") }
    }

    @Test(arguments: [
        ("tcp://0.0.0.0:5765", "tcp://0.0.0.0:5765"), ("tcp://127.0.0.1", "tcp://127.0.0.1:5765"),
        ("tcp://[::1]:80", "tcp://[::1]:80"), ("tcp://[::]", "tcp://[::]:5765"), ("tcp://1.2.3.4:0", "tcp://1.2.3.4:0"),
        ("tcp://[fe80:0::1%lo]:1", "tcp://[fe80::1%lo]:1"), ("tcp://[fe80::1%br-0.7]", "tcp://[fe80::1%br-0.7]:5765"),
    ])
    func `addresses are numeric`(_ text: String, _ normal: String) {
        #expect(GatewayAddress(text)?.description == normal)
    }

    @Test(arguments: [
        "", "tcp://", "127.0.0.1:1", "ipc:///x", "tcp://localhost:1", "tcp://*:1", "tcp://::1:80", "tcp://::1",
        "tcp://[127.0.0.1]:1", "tcp://1.2.3.4:65536", "tcp://1.2.3.4:", "tcp://1.2.3.4:-1", "tcp://1.2.3.4:+1",
        "tcp://[::1]:", "tcp://[::1", "tcp://1.2.3.4 :1", "tcp://[::1%lo]:1", "tcp://[fe80::1%]:1",
        "tcp://[fe80::1%a%b]:1", "tcp://[fe80::1%a/b]:1", "tcp://[fe80::1%abcdefghijklmnop]:1", "tcp://fe80::1%lo:1",
    ])
    func `other addresses are refused`(_ text: String) { #expect(GatewayAddress(text) == nil) }
}
