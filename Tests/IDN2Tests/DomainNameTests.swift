import IDN2
import Testing

/// Host names that libidn2 converts or refuses.
@Suite struct DomainNameTests {
    @Test(
        "a host name is converted by UTS 46 without transitional mappings",
        arguments: [
            ("bücher.example", "xn--bcher-kva.example"), ("BÜCHER.Example", "xn--bcher-kva.example"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"), ("faß.de", "xn--fa-hia.de"),
            ("例え。テスト", "xn--r8jz45g.xn--zckzah"), ("ａ.example", "a.example"), ("ü.example.", "xn--tda.example."),
            ("xn--bcher-kva.ü.example", "xn--bcher-kva.xn--tda.example"), ("_a.ü.example", "_a.xn--tda.example"),
        ])
    func isConverted(name: String, ascii: String) throws {
        #expect(try DomainName.asciiForm(of: name) == ascii)
    }

    @Test(
        "an invalid host name is refused with the reason",
        arguments: [
            ("\u{202e}a.example", "string contains a disallowed character"),
            ("-ü.example", "string start/ends with forbidden hyphen"),
            ("a\u{200d}b.example", "string contains a forbidden context-j character"),
            ("١.example", "string has forbidden bi-directional properties"),
            (String(repeating: "ü", count: 70), "punycode encoded data will be too large"),
            ("ü\u{0}.example", "NUL in the name"),
        ])
    func isRefused(name: String, reason: String) {
        let error = #expect(throws: DomainNameError.self) { try DomainName.asciiForm(of: name) }
        #expect(error?.code == .invalidName)
        #expect(error?.detail == reason)
    }
}
