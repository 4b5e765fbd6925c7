import EarshotWire
import Testing

@testable import earshot

/// Files of credentials in the format of netrc(5).
@Suite struct NetrcTests {
    private func credentials(_ text: String, for url: String = "http://a.example/x") -> String? {
        Netrc(text)?.credentials(for: url).map { "\($0.user):\($0.password)" }
    }

    @Test(arguments: [
        "machine a.example login u password p", "machine A.EXAMPLE\nlogin u\r\n\tpassword p\r\n",
        "# comment\n  # login x\nmachine b login x password y\nmachine a.example password p account z login u",
        "machine a.example login \"u\" password \"p\"", "default login u password p",
        "machine a.example login u password p machine a.example login x password y",
        "macdef init\nmachine a.example login x password y\n\nmachine a.example login u password p",
        "machine a.example # the mirror\n  login u # a comment\n  password p", "MACHINE a.example Login u PASSWORD p",
        "machine a.example port 80 login u password p protocol",
        "login x password y machine a.example login u password p",
    ])
    func `an entry of the host is found`(text: String) {
        #expect(credentials(text) == "u:p")
    }

    @Test func `the default entry is for hosts without an entry alone`() {
        let text = "machine a.example login u password p\ndefault login d password e"
        #expect(credentials(text) == "u:p")
        #expect(credentials(text, for: "https://other.example:8443/") == "d:e")
        #expect(credentials("machine a.example login u password p", for: "http://sub.a.example/") == nil)
        #expect(credentials("machine ::1 login u password p", for: "http://[::1]:80/") == "u:p")
    }

    @Test func `words keep hashes and escaped quotation marks`() {
        #expect(credentials("machine a.example login u password #p") == "u:#p")
        #expect(credentials(#"machine a.example login "u v" password "p\"\\q""#) == #"u v:p"\q"#)
    }

    @Test func `a URL with a user alone gets the entry of that user`() {
        let text =
            "machine a.example login u password p machine a.example login v password q default login w password r"
        #expect(credentials(text, for: "http://v@a.example/") == "v:q")
        #expect(credentials(text, for: "http://%76@a.example/") == "v:q")
        #expect(credentials(text, for: "http://w@a.example/") == nil)
        #expect(credentials(text, for: "http://w@b.example/") == "w:r")
    }

    @Test func `a URL with a password, and an entry without a login, get none`() {
        #expect(credentials("default login u password p", for: "http://x:y@a.example/") == nil)
        #expect(credentials("default login u password p", for: "http://u:@a.example/") == nil)
        #expect(credentials("default login u password p", for: "not a URL") == nil)
        #expect(credentials("machine a.example password p") == nil)
    }

    @Test(arguments: [
        "machine a login \"u", "machine a login u\u{1}",
    ])
    func `a quotation without end and control characters are refused`(text: String) {
        #expect(Netrc(text) == nil)
    }

    @Test(arguments: ["", "machine", "login u", "machine a.example login", "user u"])
    func `words without an entry are ignored`(text: String) {
        #expect(Netrc(text) != nil && credentials(text) == nil)
    }

    @Test func `a request gets the field of its own host`() throws {
        var fetch = Fetch(
            handler: try #require(HandlerID("h")), request: try #require(RequestID("1")), url: "http://a.example/")
        fetch.httpFields = Array("a: b".utf8)
        let netrc = try #require(Netrc("machine a.example login Aladdin password \"open sesame\""))
        netrc.authorize(&fetch)
        let authorization = "authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        #expect(String(decoding: fetch.httpFields, as: UTF8.self) == "a: b\n\(authorization)")
        fetch.url = "http://b.example/"
        let before = fetch.httpFields
        netrc.authorize(&fetch)
        #expect(fetch.httpFields == before)
    }

    @Test(arguments: [("u:p", "dTpw"), ("u:", "dTo="), ("ab:p", "YWI6cA=="), ("u:p:q", "dTpwOnE="), (":t", "OnQ=")])
    func `credentials become a Basic field`(text: String, encoded: String) {
        #expect(BasicCredentials(text)?.authorizationField == "authorization: Basic \(encoded)")
    }

    @Test(arguments: ["", "u"])
    func `credentials need a colon`(text: String) {
        #expect(BasicCredentials(text) == nil)
    }
}
