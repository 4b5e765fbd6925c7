import EarshotWire
import Testing

/// Encodings of bytes as text that all targets share.
@Suite struct TextTests {
    @Test func `the examples of RFC 4648 are encoded and decoded, with and without padding`() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            #expect(Base64.encoded(Array(plain.utf8)) == text)
            #expect(Base64.decoded(text) == Array(plain.utf8))
            #expect(Base64.decoded(text.replacing("=", with: "")) == Array(plain.utf8))
        }
        #expect(Base64.decoded("+/A=") == [0xfb, 0xf0] && Base64.encoded([0xfb, 0xf0]) == "+/A=")
        #expect(Base64.decoded("Z g") == nil && Base64.decoded("Zé") == nil)
    }

    @Test(arguments: [
        ("a%2Fb%c3%a4", "a/bä", true), ("", "", true), ("%", "%", false), ("%4", "%4", false), ("%4g", "%4g", false),
        ("%+1", "%+1", false), ("%%41", "%A", false), ("%25", "%", true),
    ])
    func `an escape is two hexadecimal digits, and others stay`(text: String, bytes: String, isSound: Bool) {
        let decoded = PercentEncoding.decoded(text.utf8)
        #expect(String(decoding: decoded.bytes, as: UTF8.self) == bytes && decoded.isSound == isSound)
    }

    @Test func `bytes that are not permitted become escapes in upper case`() {
        #expect(PercentEncoding.encoded("a/ä".utf8, where: \.isLetter) == "a%2F%C3%A4")
    }

    @Test func `secrets are equal only if all bytes are`() {
        let secret = Array("0123456789".utf8)
        #expect(ConstantTime.isEqual(secret, secret) && ConstantTime.isEqual([], []))
        #expect(!ConstantTime.isEqual(secret, secret.dropLast()) && !ConstantTime.isEqual([], secret))
        for place in secret.indices {
            var other = secret
            other[place] ^= 0x80
            #expect(!ConstantTime.isEqual(secret, other))
        }
    }

    @Test(arguments: [
        ("", #""""#), ("a/b 1", #""a/b 1""#), (#"a"b\"#, #""a\"b\\""#), ("\n\u{7f}", "\"\\u000a\u{7f}\""),
        ("ä\u{1f600}", "\"ä\u{1f600}\""),
    ])
    func `a text in JSON has escapes for quotation marks, backslashes and controls`(text: String, json: String) {
        #expect(JSONText.quoted(text) { $0.value < 0x20 } == json)
        var writer = JSONText()
        writer.value(text)
        #expect(writer.bytes == Array(json.utf8))
    }

    @Test func `further characters can be escaped, by their UTF-16 code units`() {
        #expect(JSONText.quoted("a\u{e4}\u{1f600}") { !$0.isASCII } == #""a\u00e4\ud83d\ude00""#)
    }

    @Test func `a decimal number has digits only and fits its type`() {
        for (text, number) in [("0", 0), ("065535", 65_535), ("+1", nil), ("-1", nil), ("", nil), ("65536", nil)] {
            #expect(Decimal.parse(text) == number.map { UInt16($0) })
        }
    }

    @Test func `a byte has the classes of ASCII`() {
        for byte in UInt8.min...UInt8.max {
            let character = Character(Unicode.Scalar(byte))
            let isASCII = byte < 0x80
            #expect(byte.isDigit == (isASCII && character.isWholeNumber), "\(byte)")
            #expect(byte.isLetter == (isASCII && character.isLetter), "\(byte)")
            #expect(byte.isLowercase == (isASCII && character.isLowercase), "\(byte)")
            #expect(byte.isUppercase == (isASCII && character.isUppercase), "\(byte)")
            #expect(byte.hexValue.map { Int($0) } == (isASCII ? character.hexDigitValue : nil), "\(byte)")
            #expect(!isASCII || byte.lowercased == character.lowercased().utf8.first, "\(byte)")
        }
    }

    @Test(arguments: [("", ""), (" \t", ""), ("a", "a"), ("\t a b\t ", "a b"), ("\ra\n", "\ra\n")])
    func `blanks at the ends are spaces and tabs`(text: String, trimmed: String) {
        #expect(Array(Array(text.utf8)[...].trimmed) == Array(trimmed.utf8))
    }
}
