import EarshotLoop
import Testing

@testable import EarshotClient

/// Files of keys, and addresses of buses on a network.
@Suite struct BusKeyTests {
    @Test func `a key file has a name and two keys`() throws {
        let home = try Home()
        defer { withExtendedLifetime(home) {} }
        let path = try CurveKeys.file("laptop", in: home)
        let key = try withExtendedLifetime(home) { try BusKey(file: path) }
        #expect(key.name == "laptop" && "\(key)" == "laptop")
        #expect(key.publicKey == CurveKeys.client && key.secretKey == CurveKeys.clientSecret)
    }

    private func commandError(_ body: () throws -> Void) -> String {
        do {
            try body()
            return ""
        } catch {
            #expect((error as? ClientError)?.code == .key)
            return "\(error)"
        }
    }

    @Test(arguments: [0o640, 0o604, 0o660] as [UInt32])
    func `a key file that others can read is refused, with the step that helps`(mode: UInt32) throws {
        let home = try Home()
        defer { withExtendedLifetime(home) {} }
        let path = try CurveKeys.file("open", in: home, mode: mode)
        let sentence = commandError { _ = try BusKey(file: path) }
        #expect(sentence.contains(path) && sentence.contains("chmod 600"))
    }

    @Test func `a missing file and one without keys are refused`() throws {
        let home = try Home()
        defer { withExtendedLifetime(home) {} }
        #expect(commandError { _ = try BusKey(file: home.folder.path + "/none") }.contains("No such file"))
        for lines in [
            [], ["public-key = \"\(CurveKeys.client)\""],
            ["public-key = \"\(CurveKeys.client)\"", "secret-key = \"abc\""],
            ["public-key = \(CurveKeys.client)", "secret-key = \(CurveKeys.clientSecret)"],
        ] {
            let path = try CurveKeys.file("bad", in: home, lines)
            #expect(commandError { _ = try BusKey(file: path) }.contains("earshot key new"))
        }
    }

    @Test func `a server key is given as its text or as a file that anybody may read`() throws {
        let home = try Home()
        defer { withExtendedLifetime(home) {} }
        #expect(try BusKey.readServerKey(CurveKeys.server) == CurveKeys.server)
        let path = try CurveKeys.file("server", in: home, mode: 0o644, ["public-key = \"\(CurveKeys.server)\""])
        #expect(try BusKey.readServerKey(path) == CurveKeys.server)
        let shown = try CurveKeys.file("shown", in: home, mode: 0o644, [CurveKeys.server])
        #expect(try BusKey.readServerKey(shown) == CurveKeys.server)
        let two = try CurveKeys.file("two", in: home, mode: 0o644, [CurveKeys.server, CurveKeys.client])
        #expect(commandError { _ = try BusKey.readServerKey(two) }.contains("public-key"))
        #expect(commandError { _ = try BusKey.readServerKey("short") }.contains("40 characters"))
        let empty = try CurveKeys.file("empty", in: home, mode: 0o644, [])
        #expect(commandError { _ = try BusKey.readServerKey(empty) }.contains("public-key"))
    }

    @Test func `addresses have a host and a port`() throws {
        for address in ["tcp://a:1", "tcp://a.example.org:5765", "tcp://127.0.0.1:65535", "tcp://[::1]:9"] {
            #expect(NetworkAddress(address)?.description == address)
        }
        #expect(NetworkAddress("tcp://[fe80::1%eth0]:9")?.isIPv6 == true)
        #expect(NetworkAddress("tcp://a:1")?.isIPv6 == false)
        for address in [
            "", "tcp://", "tcp://a", "tcp://:1", "tcp://a:", "tcp://a:0", "tcp://a:65536", "tcp://a:+1", "tcp://a b:1",
            "tcp://a;b:1", "tcp://[::1:1", "tcp://::1:1", "http://a:1", "a:1",
            "tcp://\(String(repeating: "a", count: 254)):1",
        ] { #expect(NetworkAddress(address) == nil, "\(address)") }
    }

    @Test func `several buses have one server key, or one each`() throws {
        let home = try Home()
        defer { withExtendedLifetime(home) {} }
        let path = try CurveKeys.file("me", in: home)
        let addresses = ["tcp://a:1", "tcp://b:1"]
        for keys in [[CurveKeys.server], [CurveKeys.server, CurveKeys.client]] {
            let endpoints = try BusEndpoint.list(addresses, keyFile: path, serverKeys: keys)
            #expect(endpoints.map(\.description) == addresses)
        }
        for keys in [[], Array(repeating: CurveKeys.server, count: 3)] {
            #expect(commandError { _ = try BusEndpoint.list(addresses, keyFile: path, serverKeys: keys) } != "")
        }
        #expect(
            commandError { _ = try BusEndpoint.list(addresses, keyFile: nil, serverKeys: [CurveKeys.server]) } != "")
    }
}
