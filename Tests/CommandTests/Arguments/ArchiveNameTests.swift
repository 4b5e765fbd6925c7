import Foundation
import Testing

@testable import earshot

/// Names of compressed files, whose content coding stays.
@Suite struct ArchiveNameTests {
    @Test(arguments: ["a.tar.gz", "A.TGZ", "x/y.zip", "b.Z", ".7z", "a.tar.zst", "a.lz4"])
    func `a name of compressed content keeps its coding`(name: String) { #expect(ArchiveName.matches(name)) }

    @Test(arguments: ["gz", "a.html", "a.gz.asc", "a.", "", "a.gzip", "a.tar"])
    func `any other name does not`(name: String) { #expect(!ArchiveName.matches(name)) }

    @Test(arguments: [
        ("http://h/a.tar.gz?x=1.html#y", true), ("http://h/a%2Etgz", true), ("http://h.zip", false),
        ("http://h.zip/", false), ("http://h/a?file=b.zip", false),
    ])
    func `the last segment of a path decides`(url: String, isArchive: Bool) {
        #expect(ArchiveName.matches(url: url) == isArchive)
    }

    @Test func `the document lists the endings`() throws {
        let page = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../../docs/command-line.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        let row = try #require(text.split(separator: "\n").first { $0.hasPrefix("Endings of archives: ") })
        let words = row.split(separator: "`").enumerated().filter { $0.offset % 2 == 1 }.map { String($0.element) }
        #expect(Set(words) == Set(ArchiveName.suffixes.map { ".\($0)" }))
    }
}
