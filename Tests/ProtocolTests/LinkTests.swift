import Testing

/// The links of all documents of the repository.
@Suite struct LinkTests {
    /// All documents by their paths, each read once.
    private static let documents = Result {
        try Dictionary(
            uniqueKeysWithValues: DocumentFolder.documents().map { ($0, Markdown(try DocumentFolder.text($0))) })
    }

    @Test func `the documents of all folders are checked`() throws {
        let found = try DocumentFolder.documents()
        for path in [
            "README.md", "docs/command-line.md", "docs/decisions/README.md", "examples/c/README.md",
            "protocols/1-core.md",
            "Tests/Bench/results/batch.md",
        ] {
            #expect(found.contains(path), "\(path)")
        }
        #expect(!found.contains { $0.contains("/.") || $0.hasPrefix(".") })
    }

    @Test func `each link of a document leads to a file or a heading`() throws {
        for (path, document) in try Self.documents.get() {
            for link in document.links {
                if let fault = try Self.fault(of: link, in: path) { Issue.record("\(path): \(link): \(fault)") }
            }
        }
    }

    @Test(arguments: [
        ("[a](none.md)", "none.md"), ("[a](README.md#none)", "README.md#none"),
        ("![a](none.png \"title\")", "none.png"),
        ("text\n[a]: none.md", "none.md"), ("<img src=\"none.png\">", "none.png"), ("[a](<none.md>)", "none.md"),
        ("```\n# none\n```\n[a](#none)", "#none"), ("# Twice\n# Twice\n[a](#twice-2)", "#twice-2"),
    ])
    func `a link to nothing is detected`(text: String, link: String) throws {
        let document = Markdown(text)
        #expect(document.links == [link])
        #expect(try Self.fault(of: link, in: "canary.md", with: document) != nil)
    }

    @Test(arguments: [
        ("# One `two`: three\n[a](#one-two-three)", "#one-two-three"), ("# Twice\n# Twice\n[a](#twice-1)", "#twice-1"),
        ("[a](docs/operations.md#directories)", "docs/operations.md#directories"), ("[a](bin/setup)", "bin/setup"),
        ("[a](https://example.org/none#none)", "https://example.org/none#none"),
    ])
    func `a link to a file or a heading passes`(text: String, link: String) throws {
        let document = Markdown(text)
        #expect(document.links == [link])
        #expect(try Self.fault(of: link, in: "canary.md", with: document) == nil)
    }

    @Test func `code has no links`() {
        #expect(Markdown("`[a](b)`\n```sh\n[c](d)\n```\n").links.isEmpty)
    }

    /// Returns the reason why a link of the document at `path` leads nowhere; nil if it leads to a file or a heading, or out of the
    /// repository.
    private static func fault(of link: String, in path: String, with document: Markdown? = nil) throws -> String? {
        guard !link.contains("://"), !link.hasPrefix("mailto:") else { return nil }
        let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map { String($0) }
        let folder = path.split(separator: "/").dropLast().joined(separator: "/")
        let target = parts[0].isEmpty ? path : DocumentFolder.path(parts[0], in: folder)
        guard parts[0].isEmpty || DocumentFolder.exists(target) else { return "there is no \(target)" }
        guard parts.count == 2 else { return nil }
        guard let found = try target == path ? document ?? documents.get()[path] : documents.get()[target] else {
            return "\(target) is no document"
        }
        return found.anchors.contains(parts[1]) ? nil : "\(target) has no heading for #\(parts[1])"
    }
}
