import Testing

@testable import earshot

/// The output of `earshot --version`.
@Suite struct VersionReportTests {
    @Test(arguments: [
        ("", "unknown", "unknown"), ("commit 2a24aa13\n", "2a24aa13", "unknown"),
        ("commit 2a24aa13-dirty\nSwift 6.3.1\n", "2a24aa13-dirty", "6.3.1"), ("commit", "unknown", "unknown"),
    ])
    func `facts that the build did not write are unknown`(_ text: String, _ commit: String, _ swift: String) {
        let facts = VersionReport.buildFacts(text)
        #expect(facts.map(\.name) == ["commit", "Swift"])
        #expect(facts.map(\.value) == [commit, swift])
    }

    @Test func `the first line has only name and version`() {
        #expect(VersionReport.table([("a", "1"), ("name", "2")]) == "\(VersionReport.firstLine)\na     1\nname  2\n")
    }

    @Test func `the report names each library and its version`() {
        let rows = VersionReport.text.split(separator: "\n").dropFirst().map { $0.split(separator: " ", maxSplits: 1) }
        #expect(
            rows.map { String($0[0]) } == [
                "commit", "Swift", "protocols", "libcurl", "c-ares", "SQLite", "OpenSSL", "libidn2", "libpsl", "zlib",
                "brotli", "zstd", "libzmq",
            ])
        // All of them are installed where the tests run.
        for row in rows[3...] { #expect(row[1].contains(/^ *\d+\.\d+/), "\(row)") }
    }
}
