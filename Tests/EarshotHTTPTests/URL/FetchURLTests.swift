import EarshotHTTP
import Testing

/// URLs in their normal form, and texts that are none.
@Suite struct FetchURLTests {
    @Test(
        "a URL is brought into normal form",
        arguments: [
            Case("RFC 3986 3.1, scheme in lower case", "HTTPS://example.org/", "https://example.org/"),
            Case("RFC 3986 3.2.2, host in lower case", "http://EXAMPLE.Org/Path", "http://example.org/Path"),
            Case("RFC 3986 3.2.3, default port", "http://h:80/", "http://h/"),
            Case("RFC 3986 3.2.3, default port of https", "https://h:443/", "https://h/"),
            Case("RFC 3986 3.2.3, empty port", "http://h:/", "http://h/"),
            Case("RFC 3986 3.2.3, another port", "https://h:80/", "https://h:80/"),
            Case("RFC 3986 3.2.3, zeros before the port", "http://h:0008080/", "http://h:8080/"),
            Case("RFC 3986 3.2.3, zeros before the default port", "http://h:00080/", "http://h/"),
            Case("RFC 3986 3.2.3, the last port", "http://h:65535/", "http://h:65535/"),
            Case("RFC 3986 6.2.3, empty path", "http://h", "http://h/"),
            Case("RFC 3986 6.2.3, empty path before a query", "http://h?q", "http://h/?q"),
            Case("RFC 3986 3.4, empty query", "http://h/?", "http://h/?"),
            Case("RFC 3986 3.4, a query may hold ? and /", "http://h/?a/../?b", "http://h/?a/../?b"),
            Case("RFC 3986 3.5, fragment", "http://h/a#f", "http://h/a"),
            Case("RFC 3986 3.5, fragment after the host", "http://h#f/@x?y", "http://h/"),
            Case("RFC 3986 3.5, fragment after a query", "http://h/?q#f?g", "http://h/?q"),
            Case("RFC 3986 3.5, fragment after a dot segment", "http://h/a/.#f", "http://h/a/"),
            Case("RFC 3986 3.2.1, user information", "http://u:p%40@h/", "http://u:p%40@h/"),
            Case("RFC 3986 3.2.1, empty user information", "http://@h/", "http://h/"),
            Case("RFC 3986 3.2.1, only a colon", "http://:@h/", "http://h/"),
            Case("RFC 3986 3.2.1, only a password", "http://:p@h/", "http://:p@h/"),
            Case("RFC 3986 5.2.4, example", "http://h/a/b/c/./../../g", "http://h/a/g"),
            Case("RFC 3986 5.2.4, dots above the root", "http://h/../../g", "http://h/g"),
            Case("RFC 3986 5.2.4, a dot at the end", "http://h/a/.", "http://h/a/"),
            Case("RFC 3986 5.2.4, two dots at the end", "http://h/a/b/..", "http://h/a/"),
            Case("RFC 3986 5.2.4, nothing but dots", "http://h/..", "http://h/"),
            Case("RFC 3986 5.2.4, empty segments stay", "http://h/a//../b//c", "http://h/a/b//c"),
            Case("RFC 3986 5.2.4, empty segment after dots", "http://h/..//a", "http://h//a"),
            Case("RFC 3986 5.2.4, dots before a query", "http://h/a/..?x/../y", "http://h/?x/../y"),
            Case("RFC 3986 5.2.4, three dots are a name", "http://h/.../.a/a./", "http://h/.../.a/a./"),
            Case("RFC 3986 2.1, space", "http://h/a b?c d", "http://h/a%20b?c%20d"),
            Case("RFC 3986 2.1, not ASCII", "http://h/é?ü", "http://h/%C3%A9?%C3%BC"),
            Case("RFC 3986 2.1, escapes stay as they are", "http://h/%7e%2F%zz%", "http://h/%7e%2F%zz%"),
            Case("URL standard 1.3, path percent-encode set", "http://h/\"<>^`{|}", "http://h/%22%3C%3E%5E%60%7B|%7D"),
            Case("URL standard 1.3, query percent-encode set", "http://h/?\"<>^`{|}'", "http://h/?%22%3C%3E^`{|}'"),
            Case("URL standard 3.5, decimal host", "http://2130706433/", "http://127.0.0.1/"),
            Case("URL standard 3.5, hexadecimal host", "http://0X7F.1/", "http://127.0.0.1/"),
            Case("URL standard 3.5, octal host", "http://0177.0.0.01/", "http://127.0.0.1/"),
            Case("URL standard 3.5, three parts", "http://127.0.1/", "http://127.0.0.1/"),
            Case("URL standard 3.5, empty hexadecimal number", "http://0x/", "http://0.0.0.0/"),
            Case("URL standard 3.5, dot after an address", "http://127.0.0.1./", "http://127.0.0.1/"),
            Case("URL standard 3.5, the last address", "http://4294967295/", "http://255.255.255.255/"),
            Case("URL standard 3.5, a number that is no last label", "http://1.2.3.example/", "http://1.2.3.example/"),
            Case("URL standard 3.5, a last label with a letter", "http://a.0xg/", "http://a.0xg/"),
            Case("RFC 5952 4, IPv6", "http://[2001:DB8:0:0:0:0:0:1]:8080/", "http://[2001:db8::1]:8080/"),
            Case("RFC 5952 4.3, lower case", "http://[2001:DB8::1]/", "http://[2001:db8::1]/"),
            Case("RFC 5952 5, mapped address", "http://[::FFFF:7f00:1]/", "http://[::ffff:127.0.0.1]/"),
            Case("RFC 1034 3.1, dot at the end", "http://example.org./", "http://example.org./"),
            Case("RFC 3986 3, opaque", "thumb:x", "thumb:x"),
            Case("RFC 3986 3, opaque path is left alone", "Thumb:/a/../b c?D#f", "thumb:/a/../b%20c?D"),
            Case("RFC 3986 3, opaque and empty", "thumb:", "thumb:"),
            Case("RFC 3986 3.2, custom scheme with a host", "s3://Bucket:99/a/../b", "s3://bucket:99/b"),
            Case("RFC 3986 3.2.2, custom scheme with an empty host", "file:///etc/x", "file:///etc/x"),
            Case("RFC 3986 3.2.2, no legacy address in a custom scheme", "s3://017", "s3://017/"),
        ])
    func isNormalized(_ row: Case<String>) throws {
        let url = try FetchURL(row.input)
        #expect(url.description == row.expected)
        #expect(try FetchURL(row.expected) == url, "the normal form is its own normal form")
    }

    @Test(
        "what cannot be fetched is refused with its reason",
        arguments: [
            Case("RFC 3986 4.3, empty", "", FetchURL.ParseError.missingScheme),
            Case("RFC 3986 4.3, relative", "//h/", .missingScheme),
            Case("RFC 3986 4.3, no scheme", "example.org/x", .missingScheme),
            Case("RFC 3986 3.1, scheme begins with a digit", "1http://h/", .missingScheme),
            Case("RFC 3986 3.1, byte in the scheme", "ht_tp://h/", .missingScheme),
            Case("RFC 3986 3.1, colon in the fragment", "a#b:c", .missingScheme),
            Case("RFC 9110 4.2.1, no authority", "http:x", .missingHost),
            Case("RFC 9110 4.2.1, one slash", "https:/x", .missingHost),
            Case("RFC 9110 4.2.1, empty host", "http:///x", .missingHost),
            Case("RFC 9110 4.2.1, port alone", "http://:80/", .missingHost),
            Case("RFC 9110 4.2.1, user alone", "http://u@/", .missingHost),
            Case("URL standard 4.4, tab", "http://h/\t", .controlCharacter),
            Case("URL standard 4.4, CR", "http://h/\r", .controlCharacter),
            Case("URL standard 4.4, LF", "http://h/?\n", .controlCharacter),
            Case("URL standard 4.4, LF in the fragment", "http://h/#\n", .controlCharacter),
            Case("URL standard 4.4, NUL in the host", "http://h\u{0}/", .controlCharacter),
            Case("URL standard 4.4, DEL", "http://h/\u{7f}", .controlCharacter),
            Case("URL standard 4.4, backslash in the path", "http://h\\@evil/", .backslash),
            Case("URL standard 4.4, backslash in the query", "http://h/?\\", .backslash),
            Case("RFC 3986 3.2.1, second @", "http://a@b@h/", .invalidUserinfo),
            Case("RFC 3986 3.2.1, space", "http://a b@h/", .invalidUserinfo),
            Case("RFC 3986 3.2.1, not ASCII", "http://é@h/", .invalidUserinfo),
            Case("RFC 3986 3.2.2, escape", "http://%68/", .escapedHost),
            Case("RFC 5890 2.3.2.1, not ASCII", "http://bücher.example/", .nonASCIIHost),
            Case("RFC 3986 3.2.2, space", "http://a b/", .invalidHost),
            Case("RFC 3986 3.2.2, star", "http://*/", .invalidHost),
            Case("RFC 3986 3.2.2, comma", "http://a,b/", .invalidHost),
            Case("RFC 1035 2.3.1, empty label", "http://a..b/", .invalidHost),
            Case("RFC 1035 2.3.1, dot in front", "http://.a/", .invalidHost),
            Case("RFC 1035 2.3.1, a dot alone", "http://./", .invalidHost),
            Case("RFC 1035 2.3.1, two dots at the end", "http://a../", .invalidHost),
            Case("RFC 1035 2.3.4, long label", "http://\(String(repeating: "a", count: 64)).b/", .invalidHost),
            Case("RFC 1035 2.3.4, long last label", "http://\(String(repeating: "a", count: 64))/", .invalidHost),
            Case("RFC 1035 2.3.4, long name", "http://\(String(repeating: "a.", count: 126))ab/", .invalidHost),
            Case("RFC 3986 3.2.2, open bracket", "http://[::1/", .invalidAddress),
            Case("RFC 3986 3.2.2, text after the bracket", "http://[::1]a/", .invalidAddress),
            Case("RFC 3986 3.2.2, name in brackets", "http://[a]/", .invalidAddress),
            Case("RFC 3986 3.2.2, nothing in brackets", "http://[]/", .invalidAddress),
            Case("URL standard 3.5, octet too large", "http://1.2.3.256/", .invalidAddress),
            Case("URL standard 3.5, number too large", "http://4294967296/", .invalidAddress),
            Case("URL standard 3.5, first octet too large", "http://256.1/", .invalidAddress),
            Case("URL standard 3.5, five parts", "http://1.2.3.4.5/", .invalidAddress),
            Case("URL standard 3.5, no octal digit", "http://a.09/", .invalidAddress),
            Case("URL standard 3.5, name before a number", "http://foo.0x4/", .invalidAddress),
            Case("RFC 3986 3.2.3, zero", "http://h:0/", .invalidPort),
            Case("RFC 3986 3.2.3, too large", "http://h:65536/", .invalidPort),
            Case("RFC 3986 3.2.3, very large", "http://h:99999999999999999999999/", .invalidPort),
            Case("RFC 3986 3.2.3, sign", "http://h:+80/", .invalidPort),
            Case("RFC 3986 3.2.3, second colon", "http://h:80:80/", .invalidPort),
            Case("RFC 9110 4.1, length", "http://h/" + String(repeating: "a", count: 8184), .tooLong),
            Case("RFC 9110 4.1, length once escaped", "http://h/" + String(repeating: " ", count: 2800), .tooLong),
        ])
    func isRefused(_ row: Case<FetchURL.ParseError>) {
        #expect(throws: row.expected) { try FetchURL(row.input) }
    }

    @Test func `the longest URL is taken`() throws {
        let text = "http://h/" + String(repeating: "a", count: HTTPLimits.urlBytes - 9)
        #expect(try FetchURL(text).description == text)
    }

    @Test func `a name of 253 bytes and its dot are taken`() throws {
        let name = String(repeating: "a.", count: 127)
        #expect(try FetchURL("http://\(name)/").host.utf8.count == 254)
    }

    @Test func `the parts are told apart`() throws {
        let url = try FetchURL("HTTPS://user:pass@[2001:DB8::1]:8443/a/./b?x=1&y#z")
        #expect(url.scheme == "https")
        #expect(url.userinfo == "user:pass")
        #expect(url.host == "2001:db8::1")
        #expect(url.address == IPAddress("2001:db8::1"))
        #expect(url.port == 8443)
        #expect(url.path == "/a/b")
        #expect(url.query == "x=1&y")
        #expect(url.isHTTP && !url.isOpaque && url.hasUserinfo)
    }

    @Test func `parts that are not there are nil or empty`() throws {
        let url = try FetchURL("http://h/")
        #expect(url.userinfo == nil && url.query == nil && url.address == nil)
        #expect(url.port == 80)
        #expect(try FetchURL("http://h/?").query == "")

        let opaque = try FetchURL("thumb:a/b?c")
        #expect(opaque.host == "" && opaque.port == nil && opaque.userinfo == nil)
        #expect(opaque.path == "a/b" && opaque.query == "c")
        #expect(opaque.isOpaque && !opaque.isHTTP && !opaque.hasUserinfo)
    }

    @Test(
        "a link-local address may have a zone",
        arguments: [
            Case("RFC 6874 2", "http://[fe80::1%25d0]/a", "http://[fe80::1%25d0]/a" as String?),
            Case("RFC 4007 11.2", "HTTP://[FE80:0::1%Eth0.1]", "http://[fe80::1%25Eth0.1]/"),
            Case("RFC 4007 11.2, number", "http://[febf::1%3]:80/", "http://[febf::1%253]/"),
            Case("RFC 4007 11.2, number that looks like an escape", "http://[fe80::1%25]/", "http://[fe80::1%2525]/"),
            Case("RFC 6874 2, the same", "http://[fe80::1%2525]/", "http://[fe80::1%2525]/"),
            Case("RFC 4007 11.2, global address", "http://[2001:db8::1%25d0]/", nil),
            Case("RFC 4007 11.2, loopback", "http://[::1%25lo]/", nil),
            Case("RFC 4007 11.2, IPv4", "http://127.0.0.1%25lo/", nil),
            Case("RFC 6874 2, empty", "http://[fe80::1%]/", nil),
            Case("RFC 6874 2, escape", "http://[fe80::1%25a%2f]/", nil),
            Case("RFC 6874 2, two", "http://[fe80::1%25a%25b]/", nil),
            Case("longer than the name of an interface", "http://[fe80::1%25abcdefghijklmnop]/", nil),
        ])
    func zone(_ row: Case<String?>) throws {
        guard let expected = row.expected else {
            #expect(throws: FetchURL.ParseError.self) { try FetchURL(row.input) }
            return
        }
        let url = try FetchURL(row.input)
        #expect(url.description == expected)
        #expect(try FetchURL(expected) == url)
        #expect(url.address == IPAddress(String(url.host.prefix { $0 != "%" })) && url.address != nil)
        #expect(Origin(named: url.originName) == url.origin)
    }

    @Test func `parts are the same whether the text was in normal form or not`() throws {
        let normal = try FetchURL("https://u@h.example:8443/a?b")
        let other = try FetchURL("HTTPS://u@H.example:08443/./a?b#c")
        for url in [normal, other] {
            #expect(url.scheme == "https" && url.userinfo == "u" && url.host == "h.example" && url.port == 8443)
            #expect(url.path == "/a" && url.query == "b")
        }
        #expect(normal == other && normal.hashValue == other.hashValue)
    }

    @Test(
        "an origin is scheme, host and port",
        arguments: [
            Case("RFC 6454 6.2, default port", "https://u:p@Example.org:443/a?b", "https://example.org"),
            Case("RFC 6454 6.2, another port", "http://h:443/", "http://h:443"),
            Case("RFC 6454 6.2, IPv6", "http://[::1]:81/", "http://[::1]:81"),
            Case("RFC 6454 6.2, dot at the end", "http://h./", "http://h."),
            Case("RFC 4007 11, zone", "http://[fe80::1%25d0]:81/", "http://[fe80::1%25d0]:81"),
            Case("RFC 6454 6.2, custom scheme", "s3://bucket:9/", "s3://bucket:9"),
            Case("RFC 6454 6.2, no host", "thumb:x", "thumb:"),
        ])
    func hasOrigin(_ row: Case<String>) throws {
        #expect(try FetchURL(row.input).origin.description == row.expected)
    }

    @Test func `two URLs have the same origin if, and only if, they have the same name for it`() throws {
        let urls = try [
            "http://h/", "http://h:80/a?b", "http://u:p@h./", "http://u@h:81", "http://h:81/", "http://h.:81/x",
            "https://h/", "https://h:443/", "https://h:80/", "http://hh/", "http://h.h", "http://h.h./",
            "http://127.0.0.1/", "http://0x7f.1./x", "http://[::1]/", "http://[0:0::1]:80/", "http://[::1]:81/",
            "http://xn--e1afmkfd/", "thumb:x", "thumb:y", "thumb:", "thumb:///x", "thumb://u@/x", "thumb://h/x",
            "thumb://h./y", "thumb://h:80/x", "thumb://u@h:80/x", "thumb://:80/x", "thumb:80", "thumbs:x",
        ].map { try FetchURL($0) }
        for left in urls {
            #expect(Origin(named: left.originName) == left.origin, "\(left)")
            for right in urls {
                let isSame = left.origin == right.origin
                #expect((left.originName == right.originName) == isSame, "\(left) \(right)")
                #expect(left.hasOrigin(named: right.originName) == isSame, "\(left) \(right)")
                #expect(!isSame || left.originHash == right.originHash, "\(left) \(right)")
            }
        }
    }

    @Test func `origins differ by scheme, host and port, and by nothing else`() throws {
        let origin = try FetchURL("http://h/").origin
        #expect(try FetchURL("http://u@h:80/x?y").origin == origin)
        #expect(try FetchURL("http://h./").origin != origin)
        #expect(try FetchURL("https://h/").origin != origin)
        #expect(try FetchURL("http://h:81/").origin != origin)
        #expect(try FetchURL("http://g/").origin != origin)
    }

    @Test func `a log sees neither user information nor query`() throws {
        #expect(try FetchURL("https://u:secret@h:8443/a?token=1").redacted == "https://h:8443/a")
        #expect(try FetchURL("https://h/").redacted == "https://h/")
        #expect(try FetchURL("thumb:a?token=1").redacted == "thumb:a")
    }

    @Test func `no sentence of an error is empty or said twice`() {
        let errors: [FetchURL.ParseError] = [
            .tooLong, .controlCharacter, .backslash, .missingScheme, .missingHost, .escapedHost, .nonASCIIHost,
            .invalidHostName("reason"), .invalidHost, .invalidAddress, .invalidPort, .invalidUserinfo, .opaqueBase,
        ]
        let sentences = Set(errors.map(\.description))
        #expect(sentences.count == errors.count)
        #expect(sentences.allSatisfy { $0.hasSuffix(".") })
    }
}
