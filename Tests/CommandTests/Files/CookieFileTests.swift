import EarshotClient
import Testing

@testable import earshot

/// Files of cookies in the Netscape format, and the COOKIES messages made from them.
@Suite struct CookieFileTests {
    private func cookie(_ line: String) throws -> FileCookie? { try FileCookie(line: Array(line.utf8)[...]) }

    private func text(_ bytes: [UInt8]?) -> String? { bytes.map { String(decoding: $0, as: UTF8.self) } }

    @Test(
        "a line becomes the field by which its server could have set the cookie",
        arguments: [
            ("a.example\tFALSE\t/\tFALSE\t0\tn\tv", "a.example", "n=v; path=/"),
            (
                ".A.example\tTRUE\t/x\tTRUE\t1893456000\tn\tv w=", "a.example",
                "n=v w=; path=/x; domain=a.example; secure; expires=Tue, 01 Jan 2030 00:00:00 GMT"
            ),
            ("#HttpOnly_a.example\tfalse\t\tfalse\t0\tn", "a.example", "n=; path=/; httponly"),
            (
                "bücher.example\tTRUE\t/\tFALSE\t0\t\tv", "xn--bcher-kva.example",
                "=v; path=/; domain=xn--bcher-kva.example"
            ),
            (
                "a.example\tFALSE\t/\tFALSE\t1893456000.5\tn\tv", "a.example",
                "n=v; path=/; expires=Tue, 01 Jan 2030 00:00:00 GMT"
            ),
            ("127.0.0.1\tFALSE\t/\tFALSE\t0\tn\tv", "127.0.0.1", "n=v; path=/"),
            ("::1\tFALSE\t/\tFALSE\t0\tn\tv", "::1", "n=v; path=/"),
            (
                "a.example\tFALSE\t/\tFALSE\t99999999999999\tn\tv", "a.example",
                "n=v; path=/; expires=Fri, 31 Dec 9999 23:59:59 GMT"
            ),
        ])
    func field(line: String, host: String, field: String) throws {
        let cookie = try #require(try cookie(line))
        #expect(cookie.host == host)
        #expect(text(cookie.setCookieField) == "set-cookie: \(field)")
    }

    @Test(
        "a malformed line is refused, and its value is not in the reason",
        arguments: [
            "a.example\tFALSE\t/\tFALSE\t0", "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret\tx",
            "a.example FALSE / FALSE 0 n secret",
            "\tFALSE\t/\tFALSE\t0\tn\tsecret", "a/b\tFALSE\t/\tFALSE\t0\tn\tsecret",
            "a:80\tFALSE\t/\tFALSE\t0\tn\tsecret",
            "u@a.example\tFALSE\t/\tFALSE\t0\tn\tsecret", "a.example\tYES\t/\tFALSE\t0\tn\tsecret",
            "a.example\tFALSE\t/\t1\t0\tn\tsecret", "a.example\tFALSE\tx\tFALSE\t0\tn\tsecret",
            "a.example\tFALSE\t/\tFALSE\tsoon\tn\tsecret", "a.example\tFALSE\t/\tFALSE\t1.x\tn\tsecret",
            "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret;x",
            "a.example\tFALSE\t/;secure\tFALSE\t0\tn\tsecret", "a.example\tFALSE\t/\tFALSE\t0\ta=b\tsecret",
            "a.example\tFALSE\t/\tFALSE\t0\tn\tsecret\u{1}", "a.example\tFALSE\t/\tFALSE\t0\t\t",
        ])
    func isRefused(line: String) {
        let fault = #expect(throws: FileCookie.Fault.self) { try cookie(line) }
        #expect(fault?.reason.contains("secret") == false)
    }

    @Test func `comments, empty lines and line ends of Windows are permitted`() throws {
        let file = "\u{feff}# Netscape HTTP Cookie File\r\n\r\n# a\tb\n  \na.example\tFALSE\t/\tFALSE\t0\tn\tv\r\n"
        #expect(try CookieFile.parse(Array(file.utf8), "jar").map(\.name) == [Array("n".utf8)])
    }

    @Test func `an error names the file and the line`() {
        let file = Array("# comment\n\na.example\tFALSE\t/\tFALSE\tx\tn\tsecret\n".utf8)
        let commandError = #expect(throws: CommandError.self) { try CookieFile.parse(file, "jar.txt") }
        #expect(commandError?.status == .noInput)
        #expect(commandError?.description.contains("jar.txt: line 3: the fifth field") == true)
        #expect(commandError?.description.contains("secret") == false)
    }

    @Test func `a file has at most as many cookies as a jar`() throws {
        func file(_ count: Int) -> [UInt8] {
            (0..<count).flatMap { Array("h\($0 / 50).example\tFALSE\t/\tFALSE\t0\tn\($0)\tv\n".utf8) }
        }
        #expect(try CookieFile.parse(file(3_000), "jar").count == 3_000)
        #expect(throws: CommandError.self) { try CookieFile.parse(file(3_001), "jar") }
    }

    @Test(arguments: [
        "a.example\tFALSE\t/\tFALSE\t0\tn\tv\n", "#HttpOnly_.a.example\tTRUE\t/x\tTRUE\t1893456000\tn\tv\n",
        "::1\tFALSE\t/\tFALSE\t0\t\tv\n",
    ])
    func `an entry of the broker becomes the line that it came from`(line: String) throws {
        let cookie = try #require(try cookie(String(line.dropLast())))
        #expect(text(cookie.fileLine) == line)
        let expires = cookie.expires.map { "\"expires\":\($0)," } ?? ""
        let json = """
            {"domain":"\(cookie.host)","subdomains":\(cookie.isForSubdomains),\
            "path":"\(text(cookie.path)!)","secure":\(cookie.isSecure),"http-only":\(cookie.isHTTPOnly),\(expires)\
            "name":"\(text(cookie.name)!)","value":"\(text(cookie.value)!)"}
            """
        #expect(FileCookie(try #require(JSONValue(Array(json.utf8)))) == cookie)
    }

    @Test(arguments: ["\\t", "\\n", "\\r", "\\u0000", "\\u007f"])
    func `a server cannot begin a line or a field of the file`(escaped: String) throws {
        for place in ["domain", "path", "name", "value"] {
            let members = ["domain", "path", "name", "value"].map { name in
                "\"\(name)\":\"a\(name == place ? escaped : "")b\""
            }
            let json = try #require(JSONValue(Array("{\(members.joined(separator: ","))}".utf8)))
            #expect(FileCookie(json) == nil, "\(place)")
        }
    }

    @Test func `a message has cookies of one host, and no more than a jar evaluates`() throws {
        var cookies: [FileCookie] = []
        for number in 0..<120 {
            cookies += try [cookie("\(number % 2 == 0 ? "a" : "b").example\tFALSE\t/\tFALSE\t0\tn\(number)\tv")]
                .compactMap(\.self)
        }
        let messages = CookieExchange.messagesByHost(cookies)
        #expect(
            messages.map(\.url) == [
                "https://a.example/", "https://b.example/", "https://a.example/", "https://b.example/",
            ])
        #expect(messages.map { $0.fields.split(separator: UInt8(ascii: "\n")).count } == [50, 50, 10, 10])
        let large = try (0..<40).map {
            try #require(try cookie("a.example\tFALSE\t/\tFALSE\t0\tn\($0)\t\(String(repeating: "v", count: 4_000))"))
        }
        #expect(CookieExchange.messagesByHost(large).allSatisfy { $0.fields.count <= 48 << 10 })
        #expect(CookieExchange.messagesByHost(large).count == 4)
    }
}
