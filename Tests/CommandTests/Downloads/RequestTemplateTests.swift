import ArgumentParser
import EarshotWire
import Testing

@testable import earshot

/// The request that an item of a run becomes.
@Suite struct RequestTemplateTests {
    private func fields(
        _ entry: ListEntry, existing: ExistingFile? = nil, files arguments: [String] = [], streams: Bool = false
    ) throws -> (Fetch, OutputItem) {
        var template = RequestTemplate(
            try RequestOptions.parse(["--deadline", "9"]), of: try #require(HandlerID("h")), prefix: "p-", body: nil,
            netrc: Netrc("machine a.example login u password p"), usesCookies: true, try FileOptions.parse(arguments))
        var item = OutputItem(entry: entry, index: 3)
        let request = try #require(template.requestID(of: item))
        let fetch = template.makeFetch(
            request, &item, existing: existing, path: nil, streams: streams, progressMilliseconds: 200)
        #expect(template.isShared)
        return (fetch, item)
    }

    @Test func `a request has the options of the command, of its line and of its host`() throws {
        let (fetch, item) = try fields(ListEntry(url: "http://a.example/x", options: [.header("x: y")]))
        let head = String(decoding: ClientMessage.fetch(fetch).encoded(), as: UTF8.self)
        #expect(head.hasPrefix("FETCH h p-3 http://a.example/x\n"))
        for line in ["deadline: 9", "cookies: yes", "progress: 200", "x: y", "authorization: Basic dTpw"] {
            #expect(head.contains("\n\(line)\n"), "\(line)")
        }
        #expect(item.partial == nil)
    }

    @Test func `a streamed body keeps the interval of the broker`() throws {
        let (fetch, _) = try fields(ListEntry(url: "http://b.example/"), streams: true)
        #expect(fetch.options.streams && fetch.options.progressIntervalMilliseconds == nil)
        #expect(!fetch.httpFields.contains(UInt8(ascii: "a")))
    }

    @Test func `an existing file makes the request conditional, or one for the rest`() throws {
        let file = ExistingFile(path: "a", length: 5, modified: 1, isRegular: true, record: nil)
        let entry = ListEntry(url: "http://b.example/")
        let (conditional, item) = try fields(entry, existing: file, files: ["--timestamping"])
        #expect(
            String(decoding: conditional.httpFields, as: UTF8.self)
                == "if-modified-since: Thu, 01 Jan 1970 00:00:01 GMT")
        #expect(item.partial == nil)
        let (rest, partial) = try fields(entry, existing: file, files: ["--continue"])
        #expect(
            String(decoding: rest.httpFields, as: UTF8.self) == "range: bytes=5-\naccept-encoding: identity")
        #expect(!rest.options.route.decodesBody && rest.options.streams && partial.partial != nil)
        let (whole, _) = try fields(entry, existing: file)
        #expect(whole.httpFields.isEmpty)
    }

    @Test func `what is no URL is refused, and so is a line with an invalid option`() {
        func code(_ url: String, _ options: [EntryOption] = []) -> String? {
            RequestTemplate.rejectionOutcome(of: ListEntry(url: url, options: options))?
                .code
        }
        #expect(code("http://h/") == nil)
        #expect(code("") == "malformed-url")
        #expect(code("http://h/", [.invalid("unknown")]) == "bad-option")
    }
}
