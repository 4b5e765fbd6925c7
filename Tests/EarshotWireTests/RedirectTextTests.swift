import Testing

@testable import EarshotWire

/// The text of the field `redirects`.
struct RedirectTextTests {
    private func redirects(_ urls: [String?]) -> [Terminal.Redirect] {
        urls.map { Terminal.Redirect(status: 302, url: $0) }
    }

    private func read(_ text: String) throws -> [Terminal.Redirect] {
        try [Terminal.Redirect](HeadText(bytes: Array(text.utf8)[...]))
    }

    @Test func `pairs of status and URL are read back`() throws {
        let list = redirects(["http://a/", nil, "https://b/?c=d"])
        #expect(list.fieldValue == "302 http://a/ 302 - 302 https://b/?c=d")
        #expect(try read(list.fieldValue) == list)
    }

    @Test func `URLs without room are omitted, and every status stays`() throws {
        let long = "http://a/" + String(repeating: "x", count: 800)
        for urls in [
            Array(repeating: long, count: 10), [long, long, long, "http://b/"], [String(repeating: "y", count: 8_192)],
        ] {
            let list = redirects(urls)
            #expect(list.fieldValue.utf8.count <= WireLimits.redirectsFieldBytes)
            let read = try read(list.fieldValue)
            #expect(read == list.boundedToFieldSize && read.map(\.status) == list.map(\.status))
            #expect(zip(read, list).allSatisfy { $0.url == nil || $0.url == $1.url })
        }
        #expect(
            try read(redirects([long, long, long, "http://b/"]).fieldValue).map { $0.url != nil } == [
                true, true, false, true,
            ])
    }

    @Test func `a list that cannot be written again is malformed`() throws {
        let most = WireLimits.redirectsFieldBytes - 4
        #expect(try read("302 " + String(repeating: "x", count: most)).count == 1)
        #expect(throws: WireError.self) { try read("302 " + String(repeating: "x", count: most + 1)) }
        // Each of these bytes becomes a character of three.
        let bytes = Array("302 ".utf8) + [UInt8](repeating: 0xff, count: most / 2)
        #expect(throws: WireError.self) { try [Terminal.Redirect](HeadText(bytes: bytes[...])) }
    }

    @Test(arguments: ["302", "200 http://a/", "x http://a/", "302 http://a/ 302", "400 -"])
    func `other texts are malformed`(text: String) {
        #expect(throws: WireError.self) { try read(text) }
    }
}
