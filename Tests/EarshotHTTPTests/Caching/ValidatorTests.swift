import EarshotHTTP
import Testing

/// Entity tags and dates as validators.
@Suite struct ValidatorTests {
    private func validator(_ lines: String) -> Validator {
        Validator(response: HeaderFields(lines: Array(lines.utf8)), now: 1_767_225_600)
    }

    @Test(
        "an entity tag is read or refused",
        arguments: [
            Case("RFC 9110 8.8.3", "\"xyzzy\"", "strong" as String?),
            Case("RFC 9110 8.8.3, weak", "W/\"xyzzy\"", "weak"),
            Case("RFC 9110 8.8.3, empty", "\"\"", "strong"),
            Case("RFC 9110 8.8.3, not ASCII", "\"é\"", "strong"),
            Case("RFC 9110 8.8.3, backslash", "\"a\\\"", "strong"),
            Case("RFC 9110 8.8.3, small w", "w/\"xyzzy\"", nil),
            Case("RFC 9110 8.8.3, no marks", "xyzzy", nil),
            Case("RFC 9110 8.8.3, one mark", "\"", nil),
            Case("RFC 9110 8.8.3, weak and no more", "W/", nil),
            Case("RFC 9110 8.8.3, mark inside", "\"a\"b\"", nil),
            Case("RFC 9110 8.8.3, two tags", "\"a\", \"b\"", nil),
            Case("RFC 9110 8.8.3, blank inside", "\"a b\"", nil),
            Case("RFC 9110 8.8.3, control", "\"a\u{7f}\"", nil),
            Case("RFC 9110 8.8.3, nothing", "", nil),
            Case("longest", "\"\(String(repeating: "a", count: 1022))\"", "strong"),
            Case("too long", "\"\(String(repeating: "a", count: 1023))\"", nil),
        ])
    func entityTag(_ row: Case<String?>) {
        #expect(EntityTag(row.input).map { $0.isWeak ? "weak" : "strong" } == row.expected)
    }

    @Test(
        "entity tags are compared as the table of RFC 9110, 8.8.3.2, says",
        arguments: [
            ("W/\"1\"", "W/\"1\"", false, true), ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true), ("\"1\"", "\"1\"", true, true), ("\"1\"", "\"2\"", false, false),
        ])
    func comparison(_ first: String, _ second: String, _ strongly: Bool, _ weakly: Bool) throws {
        let first = try #require(EntityTag(first))
        let second = try #require(EntityTag(second))
        #expect(first.isStronglyEqual(to: second) == strongly && second.isStronglyEqual(to: first) == strongly)
        #expect(first.isWeaklyEqual(to: second) == weakly && second.isWeaklyEqual(to: first) == weakly)
    }

    @Test func `a tag without quotation marks asks a server, and is not strong`() {
        let unquoted = validator("etag: xyzzy")
        #expect(unquoted.entityTag?.isWeaklyEqual(to: EntityTag("\"xyzzy\"")!) == true)
        #expect(!unquoted.isStrong && unquoted.ifRange == nil && !unquoted.isEmpty)
        for text in ["w/xyzzy", "W/", "a b", "a\"b", "", "\"a\", \"b\"", String(repeating: "a", count: 1_023)] {
            #expect(validator("etag: \(text)").entityTag == nil, "\(text)")
        }
    }

    private static let modified = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT"
    private static let later = "date: Sun, 06 Nov 1994 08:49:38 GMT"

    @Test(
        "a validator is strong if its equality means equal bytes",
        arguments: [
            Case("RFC 9110 8.8.1, strong tag", "etag: \"a\"", true),
            Case("RFC 9110 8.8.1, the same tag twice", "etag: \"a\"\nETag: \"a\"", true),
            Case("RFC 9110 8.8.1, weak tag", "etag: W/\"a\"", false),
            Case("RFC 9110 8.8.1, two tags", "etag: \"a\"\netag: \"b\"", false),
            Case("RFC 9110 8.8.2.2, a second before Date", "\(modified)\n\(later)", true),
            Case("RFC 9110 8.8.2.2, in the second of Date", "\(modified)\ndate: Sun, 06 Nov 1994 08:49:37 GMT", false),
            Case("RFC 9110 8.8.2.2, after Date", "\(modified)\ndate: Sun, 06 Nov 1994 08:49:36 GMT", false),
            Case("RFC 9110 8.8.2.2, no Date", modified, false),
            Case("RFC 9110 8.8.2.2, broken Date", "\(modified)\ndate: today", false),
            Case("RFC 9110 8.8.2.2, two dates", "\(modified)\n\(later)\ndate: Mon, 07 Nov 1994 08:49:37 GMT", false),
            Case("RFC 9110 13.1.5, a date beside a weak tag", "etag: W/\"a\"\n\(modified)\n\(later)", false),
            Case("RFC 9110 13.1.5, a date beside a broken tag", "etag: a\n\(modified)\n\(later)", false),
            Case("nothing", "", false),
        ])
    func strength(_ row: Case<Bool>) {
        let validator = validator(row.input)
        #expect(validator.isStrong == row.expected)
        #expect(validator.isStronglyEqual(to: validator) == row.expected)
    }

    @Test func `validators of two kinds are never equal`() {
        let tag = validator("etag: \"a\"\n\(Self.modified)\n\(Self.later)")
        let date = validator("\(Self.modified)\n\(Self.later)")
        #expect(tag.isStrong && date.isStrong)
        #expect(!tag.isStronglyEqual(to: date) && !date.isStronglyEqual(to: tag))
        #expect(!date.isStronglyEqual(to: validator("last-modified: Sat, 05 Nov 1994 08:49:37 GMT\n\(Self.later)")))
    }

    @Test func `a validator is empty if a server could not be asked by it`() {
        #expect(validator("").isEmpty)
        #expect(validator("etag: a b\nlast-modified: today").isEmpty)
        #expect(!validator("etag: W/\"a\"").isEmpty)
        #expect(validator(Self.modified).lastModified == 784_111_777)
    }
}
