import EarshotHTTP
import EarshotWire
import Foundation
import Testing

@testable import earshot

/// Names of output files, and their templates; names that the server suggests; failed URLs; existing files.
@Suite struct OutputTemplateTests {
    @Test(arguments: [
        ("{host}/{path}", "h.example/a/b.txt"), ("{n}-{name}", "7-b.txt"), ("x/{sha256}", "x/abc"), ("{name}", "b.txt"),
        (".hidden/{n}", "hidden/7"), ("-{n}", "7"), ("a//b/{n}", "a/b/7"),
    ])
    func `placeholders stand for parts of the URL`(template: String, path: String) throws {
        let made = try OutputTemplate(template).path(
            of: "https://u:p@h.example:81/a/b.txt?q=1", index: 7, sha256: "abc")
        #expect(made == path)
    }

    @Test(arguments: [
        ("http://h/%2e%2e/%2e%2e/etc/passwd", "h/download/download/etc/passwd"), ("http://h/", "h/index.html"),
        ("http://h", "h/index.html"), ("http://h/a/", "h/a/index.html"), ("http://h/a%2fb/..%2fc", "h/a_b/_c"),
        ("http://h/.ssh/-rf", "h/ssh/rf"), ("http://h/a%00%1b%0a/b", "h/a___/b"), ("no url", "unknown-host/no url"),
        ("http://[::1]/a", "::1/a"),
    ])
    func `no URL leads out of the directory`(url: String, path: String) throws {
        let made = try OutputTemplate("{host}/{path}").path(of: url, index: 1, sha256: nil)
        #expect(made == path)
        #expect(RelativePath.isInside(made))
    }

    @Test(arguments: ["/abs/{n}", "../{n}", "a/../{n}", "", "{unknown}", "{n", "{}"])
    func `other templates are refused`(template: String) {
        #expect(throws: OutputTemplate.Fault.self) { try OutputTemplate(template) }
    }
}

@Suite struct ContentDispositionTests {
    @Test(arguments: [
        ("attachment; filename=\"a b.txt\"", "a b.txt"), ("attachment; filename=a.txt; x=y", "a.txt"),
        ("inline; FileName = \"q\\\"x;y.txt\"", "q\"x;y.txt"), ("attachment", nil), ("", nil), ("filename=", nil),
        ("attachment; filename=a; filename*=UTF-8''%e2%82%ac%20x.txt", "\u{20ac} x.txt"),
        ("attachment; filename*=iso-8859-1'en'%e4.txt", "\u{e4}.txt"),
        ("attachment; filename=a; filename*=UTF-8''%ff", "a"), ("attachment; filename=\"../../etc/passwd\"", "passwd"),
        ("attachment; filename=\"C:\\\\x\\\\y.exe\"", "y.exe"), ("attachment; filename=\"/\"", "download"),
        ("attachment; filename=\"..\"", "download"), ("attachment; filename=\".bashrc\"", "bashrc"),
        ("attachment; filename=\"-rf\"", "rf"), ("attachment; filename=\"a\u{1b}[2J\"", "a_[2J"),
        ("attachment; filename*=UTF-8''..%2f..%2fx", "x"), ("attachment; filename=\"unclosed", "unclosed"),
        ("attachment; filename=two words.txt", "two words.txt"),
        ("attachment;filename= two  words.txt ; x", "two  words.txt"),
        ("attachment; filename=a\"b.txt", "a\"b.txt"), ("attachment; filename=\" a.txt\" x; y=z", "a.txt"),
        ("attachment; filename=\"a;b=c.txt\"; size=1", "a;b=c.txt"),
        ("attachment; filename*=UTF-8''a%20b.txt; filename=c", "a b.txt"), ("attachment; filename=", nil),
        ("attachment; filename=\"\"", nil), ("attachment; filename=\u{e4}.txt", "\u{e4}.txt"),
    ])
    func `a name of the server is a safe name`(field: String, name: String?) {
        #expect(ContentDisposition.fileName(field.utf8) == name)
    }

    @Test(arguments: ["attachment; filename=\"caf\u{e9}.txt\"", "attachment; filename=caf\u{e9}.txt"])
    func `bytes that are no UTF-8 are Latin-1`(field: String) {
        let bytes = field.unicodeScalars.map { UInt8($0.value) }
        #expect(ContentDisposition.fileName(bytes) == "caf\u{e9}.txt")
    }
}

@Suite struct OutputNamesTests {
    private func response(_ fields: String) -> Terminal.Response {
        var response = Terminal.Response(url: "http://h/a")
        response.httpFields = Array(fields.utf8)
        response.sha256 = "abc"
        return response
    }

    @Test func `names come from the list, the template or the URL, each once`() throws {
        var names = OutputNames(template: try OutputTemplate("t/{name}"))
        #expect(names.pathBeforeResponse(ListEntry(url: "http://h/a.txt"), index: 1) == "t/a.txt")
        #expect(names.pathBeforeResponse(ListEntry(url: "http://h/a.txt"), index: 2) == "t/a-2.txt")
        #expect(
            names.pathBeforeResponse(ListEntry(url: "http://h/a", options: [.outputPath("x/y")]), index: 3) == "x/y")
        #expect(
            names.pathBeforeResponse(ListEntry(url: "http://h/b.c", options: [.outputDirectory("d.e")]), index: 4)
                == "d.e/t/b.c")
        #expect(
            names.pathBeforeResponse(
                ListEntry(url: "http://h/b", options: [.outputDirectory("d.e"), .outputPath("f")]), index: 4)
                == "d.e/f")
        #expect(
            names.pathBeforeResponse(
                ListEntry(url: "http://h/b", options: [.outputDirectory("d.e"), .outputPath("f")]), index: 5)
                == "d.e/f-2")
    }

    @Test func `a name that depends on the response is known with the response`() throws {
        var byHash = OutputNames(template: try OutputTemplate("{sha256}"))
        #expect(byHash.pathBeforeResponse(ListEntry(url: "http://h/a"), index: 1) == nil)
        #expect(byHash.path(ListEntry(url: "http://h/a"), index: 1, response("")) == "abc")
        var byServer = OutputNames(readsResponse: true)
        let entry = ListEntry(url: "http://h/a")
        #expect(byServer.pathBeforeResponse(entry, index: 1) == nil)
        #expect(byServer.path(entry, index: 1, response("Content-Disposition: attachment; filename=\"../b\"")) == "b")
        #expect(byServer.path(entry, index: 1, response("x: y")) == "a")
        #expect(byServer.pathBeforeResponse(ListEntry(url: "http://h/a", options: [.outputPath("o")]), index: 2) == "o")
    }
}

@Suite struct FailureListTests {
    private let folder = CommandFolder()

    @Test func `a failed list can be read`() throws {
        let path = folder.path + "/failed"
        let entries = [
            ListEntry(url: "http://h/a?b", options: [.header("A: b"), .outputDirectory("d")]),
            ListEntry(url: "http://h/b", options: [.outputPath("x"), .checksum(String(repeating: "0", count: 64))]),
        ]
        let list = try FailureList(path)
        list.add(entries[0], name: "d/a", cause: "HTTP status 404\n(http-status)")
        list.add(entries[1], name: nil, cause: "timeout")
        list.add(ListEntry(url: "line 3", options: [.invalid("r")]), name: nil, cause: "r (bad-option)")
        #expect(try folder.names == [], "the list is complete or not there")
        try list.finish()
        #expect(
            try folder.text("failed")
                == """
                # HTTP status 404\\u{a}(http-status)
                http://h/a?b
                  header=A: b
                  out=d/a
                # timeout
                http://h/b
                  out=x
                  checksum=sha-256=\(String(repeating: "0", count: 64))
                # line 3: r (bad-option)

                """)
        let read = try URLList.read(path)
        #expect(read.map(\.url) == entries.map(\.url))
        #expect(read[0].options == [.header("A: b"), .outputPath("d/a")] && read[1] == entries[1])
    }

    @Test(arguments: [
        "http://h/a b\nhttp://h/injected\n  header=X-Evil: 1", "  out=x", "#c", "\thttp://h/a", "http://h/a\r",
    ])
    func `text that a list cannot hold as a URL is a comment`(url: String) throws {
        let path = folder.path + "/failed"
        let list = try FailureList(path)
        list.add(ListEntry(url: url, options: [.header("A: b")]), name: "o", cause: "c")
        try list.finish()
        #expect(try folder.text("failed").hasPrefix("# ") && folder.text("failed").utf8.count { $0 == 0x0a } == 1)
        #expect(try URLList.read(path) == [])
    }

    @Test func `bytes that are not UTF-8 stay the same from list to list`() throws {
        let given = Array("http://h/a\n  header=X-Name: caf".utf8) + [0xe9, 0x0a]
        var list = URLList()
        let entry = try #require((list.parse(given[...]) + list.finish()).first)
        #expect(FailureList.lines(entry, name: nil, cause: "c") == Array("# c\n".utf8) + given)
    }

    @Test func `a place that cannot be written is a complaint at the start`() {
        #expect(throws: CommandError.self) { try FailureList(folder.path + "/none/failed") }
    }
}

@Suite struct OutputItemTests {
    private let folder = CommandFolder()

    private func item(_ name: String) -> OutputItem {
        OutputItem(entry: ListEntry(url: "http://h/a"), index: 1, name: name)
    }

    @Test func `directories of a name are created, and the time is set`() throws {
        var destination = try Destination.folder(folder.path, interrupt: -1)
        let paths = try ["d/e/a", "d/e/b", "d/c"].map {
            try destination.write(.bytes([65]), of: item($0), modified: 86_400)
        }
        #expect(paths == ["d/e/a", "d/e/b", "d/c"].map { folder.path + "/" + $0 })
        let found = try #require(destination.existingFile("d/e/b"))
        #expect(found.modified == 86_400 && found.isRegular)
        #expect(destination.existingFile("d/none") == nil)
    }

    @Test func `a link among the directories is not followed`() throws {
        try FileManager.default.createDirectory(atPath: folder.path + "/out", withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(atPath: folder.path + "/out/d", withDestinationPath: folder.path)
        var destination = try Destination.folder(folder.path + "/out", interrupt: -1)
        #expect(throws: OutputFailure.self) { try destination.write(.bytes([65]), of: item("d/a")) }
        #expect(try folder.names == ["out"])
        _ = try folder.file("outside", "")
        #expect(destination.existingFile("d/outside") == nil, "a file behind the link is not that of the URL")
    }

    @Test func `times have the form of HTTP`() {
        #expect(FileTime.httpDateText(784_111_777) == "Sun, 06 Nov 1994 08:49:37 GMT")
        var response = Terminal.Response(url: "u")
        response.httpFields = Array("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT".utf8)
        #expect(FileTime.lastModified(of: response) == 784_111_777)
        response.httpFields = Array("last-modified: soon".utf8)
        #expect(FileTime.lastModified(of: response) == nil)
    }
}

@Suite struct ExistingFileTests {
    private let folder = CommandFolder()
    private let partial = ExistingFile(path: "f", length: 10, modified: 784_111_777, isRegular: true, record: nil)
    private static let time = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT"

    @Test(
        arguments: [
            (206, "content-range: bytes 10-19/20\n\(time)", ExistingFile.ResumptionResult.body),
            (200, "x: y", .replaceWithBody),
            (nil, "x: y", .replaceWithBody),
            (416, "content-range: bytes */10", Optional.some(.fileComplete)), (416, "content-range: bytes */11", nil),
            (416, "content-range: bytes 0-9/10", Optional.some(.fileComplete)), (416, "x: y", nil),
            (206, "content-range: bytes 10-19/*\ncontent-encoding: identity\n\(time)", .body),
        ] as [(Int?, String, ExistingFile.ResumptionResult?)])
    func `a response continues, completes or replaces the file`(
        status: Int?, fields: String, rest: ExistingFile.ResumptionResult?
    ) {
        #expect(partial.resumptionResult(of: status, HeaderFields(lines: Array(fields.utf8)), received: 10) == rest)
    }

    @Test(
        arguments: [
            (206, "content-range: bytes 9-18/20"), (206, "content-range: bytes */20"), (206, "x: y"),
            (206, "content-range: bytes 10-19/20\nlast-modified: Sun, 06 Nov 1994 08:49:38 GMT"),
            (206, "content-range: bytes 10-19/30\n\(time)"), (206, "content-range: bytes 10-20/21\n\(time)"),
            (206, "content-range: bytes 10-19/20"),
            (206, "content-range: bytes 10-19/20\ncontent-encoding: gzip"), (416, "content-range: bytes */9"),
        ])
    func `another range, a newer body and a shorter body are refused`(status: Int, fields: String) {
        guard
            case .unusable = partial.resumptionResult(of: status, HeaderFields(lines: Array(fields.utf8)), received: 10)
        else {
            Issue.record("it is used")
            return
        }
    }

    private func recorded(_ record: String) throws -> ExistingFile {
        let record = try #require(PartialBodyRecord(record))
        return ExistingFile(path: "f", length: record.storedLength, modified: 0, isRegular: true, record: record)
    }

    @Test(
        arguments: [
            (206, "content-range: bytes 10-19/20\netag: \"1\"", 10, ExistingFile.ResumptionResult.body),
            (206, "content-range: bytes 10-19/20\netag: \"1\"", nil, .body), (200, "etag: \"2\"", 10, .replaceWithBody),
            (416, "x: y", 0, nil),
        ] as [(Int, String, Int?, ExistingFile.ResumptionResult?)])
    func `a part of a known version is continued by the same version`(
        status: Int, fields: String, received: Int?, rest: ExistingFile.ResumptionResult?
    ) throws {
        let found = try recorded("10/20 \"1\"").resumptionResult(
            of: status, HeaderFields(lines: Array(fields.utf8)), received: received)
        #expect(found == rest)
    }

    @Test func `a 416 completes a file of this length and version alone`() throws {
        let fields = HeaderFields(lines: Array("content-range: bytes */10\netag: \"1\"".utf8))
        #expect(try recorded("10/10 \"1\"").resumptionResult(of: 416, fields, received: 0) == .some(.fileComplete))
        for record in ["10/20 \"1\"", "10/10 \"2\"", "10/- \"2\""] {
            guard case .unusable = try recorded(record).resumptionResult(of: 416, fields, received: 0) else {
                Issue.record("\(record) is complete")
                return
            }
        }
    }

    @Test(arguments: [
        "content-range: bytes 10-19/20\netag: \"2\"", "content-range: bytes 10-19/20\netag: W/\"1\"",
        "content-range: bytes 10-19/20", "content-range: bytes 10-19/20\netag: \"1\"\netag: \"2\"",
        "content-range: bytes 10-19/21\netag: \"1\"", "content-range: bytes 10-18/20\netag: \"1\"",
        "content-range: bytes 9-18/20\netag: \"1\"", "content-range: bytes 19-10/20\netag: \"1\"",
        "content-range: bytes 10-29/30\netag: \"1\"", "content-range: bytes */20\netag: \"1\"",
        "content-range: bytes 0xa-19/20\netag: \"1\"", "content-range: items 10-19/20\netag: \"1\"",
        "content-range: bytes 10-73786976294838206464/20\netag: \"1\"", "etag: \"1\"",
        "content-range: bytes 10-19/20\netag: \"1\"\ncontent-encoding: gzip",
        "content-range: bytes 10-19/20\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT",
    ])
    func `a part of a known version is joined with nothing else`(fields: String) throws {
        let found = try recorded("10/20 \"1\"").resumptionResult(
            of: 206, HeaderFields(lines: Array(fields.utf8)), received: 10)
        guard case .unusable = found else {
            Issue.record("\(String(describing: found))")
            return
        }
    }

    @Test(arguments: [
        "", "1", "1/2", "1/2 ", "2/1 \"1\"", "-1/2 \"1\"", "1/2 W/\"1\"", "1/2 1", "1/2 \"1", "a/b \"1\"",
        "1/2/3 \"1\"",
    ])
    func `a malformed record is none`(text: String) { #expect(PartialBodyRecord(text) == nil) }

    @Test(arguments: [
        ("etag: \"1\"", "5/9 \"1\""), ("etag: W/\"1\"", nil), ("x: y", nil),
        ("etag: \"1\"\ncontent-encoding: gzip", nil),
        ("last-modified: Sun, 06 Nov 1994 08:49:37 GMT", nil),
        (
            "last-modified: Sun, 06 Nov 1994 08:49:37 GMT\ndate: Sun, 06 Nov 1994 08:49:38 GMT",
            "5/9 Sun, 06 Nov 1994 08:49:37 GMT"
        ),
        ("etag: \"\(String(repeating: "a", count: 1_024))\"", nil),
    ])
    func `only a strong validator of bytes without coding is recorded`(fields: String, text: String?) {
        let record = PartialBodyRecord(HeaderFields(lines: Array(fields.utf8)), length: 5, total: 9)
        #expect(record?.text == text)
        #expect(text.flatMap { PartialBodyRecord($0) } == record)
    }

    @Test func `a part replaces only a shorter one, or one of another version`() throws {
        let part = try #require(PartialBodyRecord("10/20 \"1\""))
        let old = ["9/20 \"1\"", "10/20 \"1\"", "19/20 \"2\"", "20/20 \"2\"", "5/- \"1\""]
        #expect(old.map { part.canReplace(PartialBodyRecord($0)) } == [true, false, true, false, true])
        #expect(!part.canReplace(nil))
    }

    @Test func `the rest is appended to the file as it was`() throws {
        _ = try folder.file("a", "begin")
        var destination = try Destination.folder(folder.path, interrupt: -1)
        let item = OutputItem(entry: ListEntry(url: "http://h/a"), index: 1, name: "a")
        let partial = try #require(destination.existingFile("a"))
        #expect(
            try destination.append(.bytes(Array(", end".utf8)), to: partial, of: item, modified: 1) == folder.path
                + "/a")
        #expect(try folder.text("a") == "begin, end")
        #expect(throws: OutputFailure.self, "its length has changed") {
            try destination.append(.bytes([65]), to: partial, of: item, modified: nil)
        }
        #expect(try folder.text("a") == "begin, end")
    }

    @Test func `the hash of the complete body is compared before the rest is appended`() throws {
        _ = try folder.file("a", "begin")
        var destination = try Destination.folder(folder.path, interrupt: -1)
        let item = OutputItem(entry: ListEntry(url: "http://h/a"), index: 1, name: "a")
        var partial = try #require(destination.existingFile("a"))
        partial.digest = "a92488bcbdeac11667e22f7aab5641cc387cf381792555c17bccfa5ff5f0078d"
        let rest = OutputBody.bytes(Array(", end".utf8))
        #expect(try destination.append(rest, to: partial, of: item, modified: nil) == nil)
        #expect(try folder.text("a") == "begin")
        partial.digest = "d20a6365a329fd768b2e4cf5e662b5c513ac2e2a2e503a591c1ab774317312a9"
        #expect(try destination.append(rest, to: partial, of: item, modified: nil) != nil)
        #expect(try folder.text("a") == "begin, end")
    }
}
