import Testing

/// Documents that guide through the repository: their paths exist, they stay short, and the index of decisions is whole.
struct MapTests {
    @Test(arguments: ["ARCHITECTURE.md", "CONTRIBUTING.md"])
    func `each path that a document names exists`(document: String) throws {
        let paths = try DocumentFolder.text(document)
            .matches(of: /`((?:Sources|Tests|bin|docs|examples|protocols)\/[^`\s…<>]+)`/).map { String($0.1) }
        #expect(paths.count >= 10, "\(document)")
        for path in paths { #expect(DocumentFolder.exists(path), "\(document): \(path)") }
    }

    @Test(arguments: [("ARCHITECTURE.md", 200), ("BENCHMARKS.md", 120)])
    func `a front document stays short`(document: String, maximumLines: Int) throws {
        #expect(try DocumentFolder.text(document).count { $0 == "\n" } <= maximumLines)
    }

    @Test func `each decision has a number of its own and a row in the index`() throws {
        let files = try DocumentFolder.names("docs/decisions").filter { $0 != "README.md" }
        #expect(Set(files.map { $0.prefix(3) }).count == files.count)
        let index = try DocumentFolder.text("docs/decisions/README.md")
        for file in files {
            #expect(index.contains("[\(file.prefix(3))](\(file))"), "\(file)")
            let text = try DocumentFolder.text("docs/decisions/\(file)")
            #expect(text.hasPrefix("# \(file.prefix(3)): "), "\(file)")
            #expect(text.split(whereSeparator: \.isWhitespace).count <= 400, "\(file) is longer than a page")
        }
    }
}
