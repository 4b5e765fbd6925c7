import Testing

@testable import EarshotWorker

/// Hosts files.
@Suite struct HostsFileTests {
    private let file = HostsFile(
        Array(
            """
            # 192.0.2.9 commented
            127.0.0.1\tlocalhost one  # and a comment
              192.0.2.1   Two two.example\r
            2001:db8::1 two

            not-an-address three
            192.0.2.3
            \u{ff} four
            """.utf8))

    @Test(arguments: [
        ("one", ["127.0.0.1"]), ("two", ["192.0.2.1", "2001:db8::1"]), ("two.example", ["192.0.2.1"]),
    ])
    func `a name has the addresses of all its lines, in any case`(name: String, addresses: [String]) {
        #expect(file.addresses(of: name) == addresses)
    }

    @Test(arguments: ["commented", "comment", "three", "four", "192.0.2.3", ""])
    func `comments and lines without an address have no names`(name: String) {
        #expect(file.addresses(of: name) == nil)
    }
}
