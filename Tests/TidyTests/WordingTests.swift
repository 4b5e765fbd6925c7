import Testing

/// The words of this checkout, and one canary for each rule about words.
@Suite struct WordingTests {
    /// Comments of Swift, C and Python, and all documents.
    private static let texts = Result {
        let sources = try Checkout.files(
            in: ["Sources", "Tests", "examples", "bin"], endings: [".swift", ".h", ".c", ".py"])
        let documents = try Checkout.files(
            in: [".", "Sources", "Tests", "examples", "docs", "protocols"], endings: [".md", "Package.swift"])
        return (sources + documents).map(Prose.init)
    }

    private func rewritten() throws -> [Prose] { try Self.texts.get().filter { Wording.applies(to: $0.path) } }

    @Test func `comments and documents are plain English`() throws {
        for found in try rewritten().flatMap(Wording.violations) {
            Issue.record("\(found)")
        }
    }

    @Test(arguments: [true, false]) func `the words in total are plain English`(inDocuments: Bool) throws {
        #expect(Wording.tooFrequent(in: try rewritten().filter { $0.isDocument == inDocuments }) == [])
    }

    private func swift(_ text: String) -> Prose { Prose(SourceFile(path: "Sources/A/A.swift", text: text)) }

    private func document(_ text: String) -> Prose { Prose(SourceFile(path: "A.md", text: text)) }

    @Test(arguments: [("what", 2.0), ("who", 0.3), ("nobody", 0.3), ("whatever", 0.3), ("Whoever", 0.3)])
    func `a word above its limit is found`(word: String, perThousand: Double) {
        let filler = String(repeating: "/// One more word.\n", count: 2000)
        let allowed = Int(6 * perThousand)
        let comments = { (count: Int) in swift(filler + String(repeating: "/// \(word)\n", count: count)) }
        #expect(Wording.tooFrequent(comments(allowed)) == [])
        #expect(Wording.tooFrequent(in: [comments(allowed)]) == [])
        #expect(Wording.tooFrequent(comments(allowed + 1)).count == allowed + 1)
        #expect(Wording.tooFrequent(in: [comments(allowed + 1)]).count == 1)
        #expect(Wording.tooFrequent(in: [comments(allowed + 1), comments(allowed + 1)]).count == 1)
    }

    @Test func `a short file may contain a word once and a set of short files not once each`() {
        #expect(Wording.tooFrequent(swift("/// What it is.")) == [])
        #expect(Wording.tooFrequent(swift("/// What it is.\nlet a = 1  // what")).count == 2)
        #expect(Wording.tooFrequent(in: [swift("/// What it is."), swift("// What")]).count == 1)
    }

    @Test(arguments: Wording.idioms) func `an idiom is found`(phrase: String) {
        #expect(Wording.forbiddenPhrases(swift("/// It \(phrase).")).isEmpty == false)
        #expect(Wording.forbiddenPhrases(swift("let a = 1  // \(phrase.uppercased())")).isEmpty == false)
        #expect(Wording.forbiddenPhrases(document(phrase.replacing(" ", with: "\n"))).isEmpty == false)
        #expect(Wording.forbiddenPhrases(swift("let a = \"\(phrase)\"")) == [])
        #expect(Wording.forbiddenPhrases(document("```\n\(phrase)\n```\nSee `\(phrase)`.")) == [])
    }

    @Test func `a phrase does not span sentences`() {
        #expect(Wording.forbiddenPhrases(document("They are told. Of course.")).count == 1)
        #expect(Wording.forbiddenPhrases(document("What you let. Go on.")) == [])
    }

    @Test func `long sentences of a document are found`() {
        let words = { String(repeating: "word ", count: $0) }
        #expect(Wording.longSentences(document(words(21) + ".")).count == 1)
        #expect(Wording.longSentences(document("# A\n" + words(20) + ".\n\n| \(words(50)) |")) == [])
        #expect(Wording.longSentences(document(words(30) + ". " + words(10) + ".")) == [])
        #expect(Wording.longSentences(document("- \(words(15))\n- \(words(15))\n1. \(words(15))")) == [])
        #expect(Wording.longSentences(swift("/// " + words(40))) == [])
    }

    @Test func `comments and docstrings of Python are read and other literals are not`() {
        let text = """
            #!/usr/bin/env python3
            \"\"\"What it is.
            What more.\"\"\"
            a = \"\"\"
            what
            \"\"\"
            b = "# what"  # What else
            # What at last
            """
        let prose = Prose(SourceFile(path: "bin/a.py", text: text))
        #expect(prose.lines(with: ["what"]) == [2, 3, 7, 8])
    }

    @Test func `a block comment is read`() {
        #expect(swift("let a = 1\n/* What\n * and what\n */ let what = 2").lines(with: ["what"]) == [2, 3])
    }
}
