import EarshotHTTP
import Testing

/// Blocks of header fields: look-ups, changes and checks.
@Suite struct HeaderFieldsTests {
    private func text(_ fields: HeaderFields) -> String { String(decoding: fields.bytes, as: UTF8.self) }

    @Test func `a lookup knows no case and no blanks around a value`() {
        let fields = HeaderFields(lines: Array("Accept: \t a/b \t\nX:\nACCEPT:c\n".utf8))
        #expect(fields.firstValue(named: "accept") == "a/b")
        #expect(fields.values(named: "accept") == ["a/b", "c"])
        #expect(fields.firstValue(named: "x") == "")
        #expect(fields.contains("x") && !fields.contains("y") && !fields.contains("accep"))
        #expect(fields.firstValue(named: "y") == nil)
    }

    @Test func `the fields come in their order, and lines that are none are passed over`() {
        let fields = HeaderFields(lines: Array("A: 1\nno colon\n: no name\n\n folded: x\nb c: 2\nD : 3\ne: 4".utf8))
        #expect(fields.map { String(decoding: $0.name, as: UTF8.self) } == ["A", "e"])
        #expect(fields.map { String(decoding: $0.value, as: UTF8.self) } == ["1", "4"])
    }

    @Test func `bytes that are not UTF-8 come through`() throws {
        let fields = HeaderFields(lines: Array("a: ".utf8) + [0xe9])
        #expect(fields.map { Array($0.value) } == [[0xe9]])
        #expect(fields.firstValue(named: "a") == "\u{fffd}")
        #expect(try HeaderFields(request: fields.bytes) == fields)
    }

    @Test(
        "removal leaves whole lines",
        arguments: [
            Case("RFC 9112 5, first", "x: 1\na: 2\nb: 3", "a: 2\nb: 3"),
            Case("RFC 9112 5, in the middle", "a: 2\nX: 1\nb: 3", "a: 2\nb: 3"),
            Case("RFC 9112 5, last", "a: 2\nb: 3\nx: 1", "a: 2\nb: 3"),
            Case("RFC 9112 5, all", "x: 1\nX: 2", ""),
            Case("RFC 9112 5, several", "x: 1\na: 2\nx: 3\nx: 4\nb: 5\nx: 6", "a: 2\nb: 5"),
            Case("RFC 9112 5, none", "a: x: 1", "a: x: 1"),
            Case("RFC 9112 5, empty", "", ""),
        ])
    func removes(_ row: Case<String>) {
        var fields = HeaderFields(lines: Array(row.input.utf8))
        fields.removeAll(named: "x")
        #expect(text(fields) == row.expected)
    }

    @Test func `a field is added at the end`() throws {
        var fields = HeaderFields()
        try fields.append("Accept", "a/b")
        try fields.append("range", "bytes=1-")
        #expect(text(fields) == "Accept: a/b\nrange: bytes=1-")
    }

    @Test(
        "a field that may not be sent is not added",
        arguments: [
            ("", "v", HeaderFieldError.Code.invalidName), ("a b", "v", .invalidName), ("a:b", "v", .invalidName),
            ("a\nb", "v", .invalidName), ("a", "v\nb: w", .invalidValue), ("a", "v\r", .invalidValue),
            ("a", "\u{0}", .invalidValue), ("Host", "h", .reservedName),
            ("a", String(repeating: "v", count: HTTPLimits.headerBytes), .tooLarge),
        ])
    func isNotAdded(_ name: String, _ value: String, _ code: HeaderFieldError.Code) throws {
        var fields = HeaderFields()
        try fields.append("accept", "*/*")
        let before = fields
        let error = #expect(throws: HeaderFieldError.self) { try fields.append(name, value) }
        #expect(error?.code == code && error?.line == 2)
        #expect(fields == before)
    }

    @Test(
        "a request's fields are checked",
        arguments: [
            Case("RFC 9110 5.6.2, no colon", "accept", HeaderFieldError.Code.invalidName),
            Case("RFC 9110 5.6.2, empty name", ": v", .invalidName),
            Case("RFC 9112 5.1, blank before the colon", "a : v", .invalidName),
            Case("RFC 9112 5.2, folded line", " a: v", .invalidName),
            Case("RFC 9110 5.6.2, not ASCII", "é: v", .invalidName),
            Case("RFC 9113 8.3, pseudo-header", ":path: /", .invalidName),
            Case("RFC 9110 5.5, CR", "a: v\r", .invalidValue),
            Case("RFC 9110 5.5, NUL", "a: \u{0}", .invalidValue),
            Case("RFC 9110 5.5, control", "a: \u{1b}[0m", .invalidValue),
            Case("RFC 9110 5.5, DEL", "a: \u{7f}", .invalidValue),
            Case("RFC 9110 7.2", "HOST: h", .reservedName),
            Case("RFC 9110 7.6.1", "Connection: close", .reservedName),
            Case("RFC 9110 7.6.1", "Keep-Alive: 5", .reservedName),
            Case("RFC 9110 7.6.1", "Proxy-Connection: close", .reservedName),
            Case("RFC 9110 10.1.4", "TE: trailers", .reservedName),
            Case("RFC 9110 6.6.2", "trailer: a", .reservedName),
            Case("RFC 9112 6.1", "Transfer-Encoding: chunked", .reservedName),
            Case("RFC 9110 7.8", "Upgrade: h2c", .reservedName),
            Case("RFC 9110 8.6", "Content-Length: 0", .reservedName),
            Case("RFC 9110 10.1.1", "Expect: 100-continue", .reservedName),
        ])
    func isChecked(_ row: Case<HeaderFieldError.Code>) {
        let lines = Array("accept: */*\n\(row.input)\nlast: 1".utf8)
        let error = #expect(throws: HeaderFieldError.self) { try HeaderFields(request: lines) }
        #expect(error?.code == row.expected && error?.line == 2)
    }

    @Test func `what may be sent is taken as it is`() throws {
        let lines = "Accept: a/b\nx-a!#$%&'*+-.^_`|~9:\nhosts: \tü"
        #expect(text(try HeaderFields(request: Array(lines.utf8))) == lines)
        #expect(text(try HeaderFields(request: Array((lines + "\n").utf8))) == lines)
        #expect(try HeaderFields(request: []).isEmpty)
        #expect(try HeaderFields(request: [0x0a]).isEmpty)
    }

    @Test func `an empty line is refused wherever it is`() {
        for lines in ["\na: 1", "a: 1\n\nb: 2", "a: 1\n\n", "\n\n"] {
            #expect(throws: HeaderFieldError.self) { try HeaderFields(request: Array(lines.utf8)) }
        }
    }

    @Test func `number and size are bounded`() throws {
        let hundred = Array(repeating: "a: b", count: HTTPLimits.headerFields).joined(separator: "\n")
        var fields = try HeaderFields(request: Array(hundred.utf8))
        let one = #expect(throws: HeaderFieldError.self) { try fields.append("a", "b") }
        #expect(one?.code == .tooManyFields)
        let all = #expect(throws: HeaderFieldError.self) { try HeaderFields(request: Array((hundred + "\na: b").utf8)) }
        #expect(all?.code == .tooManyFields)

        let largest = "a: " + String(repeating: "b", count: HTTPLimits.headerBytes - 3)
        #expect(try HeaderFields(request: Array(largest.utf8)).bytes.count == HTTPLimits.headerBytes)
        let larger = #expect(throws: HeaderFieldError.self) { try HeaderFields(request: Array((largest + "b").utf8)) }
        #expect(larger?.code == .tooLarge)
    }

    @Test(
        "the canonical form is one for all spellings",
        arguments: [
            Case("RFC 9110 5.3, names of any case in any order", "B: 1\nA:2", "a:2\nb:1\n"),
            Case("RFC 9110 5.3, one name keeps its order", "b: 2\na: 1\nB: 1\nb: 3", "a:1\nb:2\nb:1\nb:3\n"),
            Case("RFC 9110 5.5, blanks", "a: \t x y \t", "a:x y\n"),
            Case("RFC 9110 5.5, empty value", "a:", "a:\n"),
            Case("RFC 9110 5.1, a name and its beginning", "ab: 1\na: 2", "a:2\nab:1\n"),
            Case("RFC 9110 5, nothing", "", ""),
        ])
    func isCanonical(_ row: Case<String>) {
        let fields = HeaderFields(lines: Array(row.input.utf8))
        #expect(String(decoding: fields.canonicalBytes, as: UTF8.self) == row.expected)
    }
}
