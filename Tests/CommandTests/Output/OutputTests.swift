import EarshotClient
import Testing

@testable import earshot

/// Lines of JSON, and JSON of the broker.
@Suite struct JSONLineTests {
    @Test func `a line is one object, without the members that have no value`() {
        var line = JSONLine()
        line.appendMember("url", "http://h/")
        line.appendMember("code", nil as String?)
        line.appendMember("status", 200)
        line.appendMember("length", nil as Int?)
        #expect(String(decoding: line.finishedLine(), as: UTF8.self) == #"{"url":"http://h/","status":200}"# + "\n")
    }

    @Test(arguments: [
        (#"a"b\c"#, #"a\"b\\c"#), ("\u{e4}\u{1f600}", "\u{e4}\u{1f600}"),
        ("a\nb\u{1b}[31m\u{7f}", #"a\u000ab\u001b[31m\u007f"#),
        ("gpj.\u{202e}exe", #"gpj.\u202eexe"#), ("\u{e0001}", #"\udb40\udc01"#),
    ])
    func `a text holds nothing that could command a terminal`(value: String, written: String) throws {
        var line = JSONLine()
        line.appendMember("a", value)
        #expect(String(decoding: line.finishedLine(), as: UTF8.self) == #"{"a":""# + written + "\"}\n")
    }

    @Test func `header fields are an array for each name`() {
        var line = JSONLine()
        line.appendMember(
            "headers",
            fields: Array("Set-Cookie: a=\"1\"\nx:\nSET-COOKIE:\t b\nno colon".utf8) + [0x0a, 0x79, 0x3a, 0xff])
        line.appendMember("none", fields: [])
        #expect(
            String(decoding: line.finishedLine(), as: UTF8.self)
                == #"{"headers":{"set-cookie":["a=\"1\"","b"],"x":[""],"y":["\#u{fffd}"]},"none":{}}"# + "\n")
    }
}

@Suite struct JSONValueTests {
    private func value(_ text: String) -> JSONValue? { JSONValue(Array(text.utf8)) }

    @Test func `members keep their order and their spelling`() throws {
        let read = try #require(value(#" { "b" : 1.50, "a":[true, null ,"x\u00e4\"\n"], "c":{} } "#))
        guard case .object(let members) = read else {
            Issue.record("not an object: \(read)")
            return
        }
        #expect(members.map(\.name) == ["b", "a", "c"])
        #expect(read.member("b")?.scalarText == "1.50")
        #expect(read.member("a") == .array([.scalar("true"), .scalar("null"), .string("x\u{e4}\"\n")]))
        #expect(read.member("c") == .object([]))
        #expect(read.member("d") == nil)
    }

    @Test func `space and escapes are those of RFC 8259`() {
        #expect(value("\t[\r\n1\t, 2 ]\n") == .array([.scalar("1"), .scalar("2")]))
        #expect(value(#""\"\\\/\b\f\n\r\t\u0041\ud83d\ude00""#) == .string("\"\\/\u{8}\u{c}\n\r\tA\u{1f600}"))
    }

    @Test(arguments: ["", "{", "[", #"{"a"}"#, #"{"a":}"#, #"{"a":1"#, #""a"#, #""\u12"#, #"{1:2}"#, "[1,"])
    func `other text is none`(text: String) {
        #expect(value(text) == nil)
    }

    @Test func `values are nested 16 deep at most`() {
        let brackets = { (depth: Int) in String(repeating: "[", count: depth) + String(repeating: "]", count: depth) }
        #expect(value(brackets(16)) != nil)
        #expect(value(brackets(17)) == nil)
    }

    @Test func `a report has a line for each member and for each item`() throws {
        let read = try #require(
            value(#"{"name":"a\u001b","workers":[{"pid":1,"schemes":["http","ftp"]},{}],"none":[]}"#))
        #expect(read.reportText() == "name: a\\u{1b}\nworkers: 2\n  pid 1, schemes http, ftp\n  none\nnone: 0\n")
        #expect(
            read.tableText()
                == "name     a\\u{1b}\nworkers  pid 1, schemes http, ftp\n         none\nnone     none\n")
    }
}

@Suite struct UnknownWordTests {
    @Test(arguments: [
        ("serv", "serve"), ("gett", "get"), ("statsu", "status"), ("watsch", "watch"), ("xyzzy", nil), ("ge", "get"),
        ("g", nil),
    ])
    func `a word is compared with the names that exist`(word: String, suggestion: String?) {
        let names = ["get", "serve", "status", "watch", "work"]
        let message = UnknownArgument(.command, word, knownNames: names, commandPath: []).message
        let hint = suggestion.map { " Did you mean '\($0)'?" } ?? ""
        #expect(message == "Error: Unknown command '\(word)'.\(hint)\n  See 'earshot --help' for more information.")
    }

    @Test func `an option names the command whose help lists it`() {
        let message = UnknownArgument(
            .option, "--worker", knownNames: ["--workers", "--slots"], commandPath: ["serve"]
        ).message
        #expect(message.contains("Unknown option '--worker'. Did you mean '--workers'?"))
        let curls = UnknownArgument(.option, "--cacert", knownNames: ["--cache", "--ca-file"], commandPath: ["get"])
            .message
        #expect(curls.contains("Unknown option '--cacert'. Did you mean '--ca-file'?"))
        #expect(message.hasSuffix("See 'earshot serve --help' for more information."))
    }
}
