import EarshotCluster
import Testing

/// Addresses of servers as text.
@Suite struct EngineAddressTests {
    @Test(arguments: [
        "127.0.0.1:6379", "[::1]:6379", "[2001:db8::1]:1", "unix:/run/redis/redis.sock",
        "redis.example:6379", "redis_1:6379",
    ])
    func `an address is its text`(text: String) {
        #expect(EngineAddress(text)?.description == text)
    }

    @Test(arguments: [
        "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "::1:6379", "[::1]", "redis.example",
        "10.0.0:6379", "300.0.0.1:6379", "[redis]:6379", "-a:6379", "a..b:6379", "a b:6379", "unix:", "unix:redis.sock",
        ":6379",
    ])
    func `a text of another form is no address`(text: String) {
        #expect(EngineAddress(text) == nil)
    }

    @Test func `the name of a cluster has letters, digits and hyphens`() {
        for name in ["a", "bus-1", "BUS"] { #expect(EngineOptions.isClusterName(name), "\(name)") }
        for name in ["", "a b", "a}", "a:b", String(repeating: "a", count: 33)] {
            #expect(!EngineOptions.isClusterName(name), "\(name)")
        }
    }
}
