import Testing

/// The names of this checkout, and canaries for the rules about names.
@Suite struct IdentifierTests {
    private static let files = Result { try Checkout.files(in: ["Sources", "Tests"], endings: [".swift"]) }

    @Test func `identifiers use standard words`() throws {
        for found in try Self.files.get().flatMap(IdentifierRules.violations) {
            Issue.record("\(found)")
        }
    }

    @Test func `identifiers in Python use standard words`() throws {
        let folders = ["Tests", "examples", "docs", "bin", "packaging"]
        for found in try Checkout.files(in: folders, endings: [".py"]).flatMap(IdentifierRules.violations) {
            Issue.record("\(found)")
        }
    }

    @Test func `two targets have no types of one name`() throws {
        for found in IdentifierRules.sharedTypes(in: try Self.files.get()) {
            Issue.record("\(found)")
        }
    }

    @Test func `each exception is needed`() throws {
        let files = try Self.files.get()
        for type in IdentifierRules.shared {
            let targets = Set(files.filter { IdentifierRules.types(of: $0).contains { $0.path == type } }.map(\.target))
            #expect(targets.count > 1, "\(type)")
        }
    }

    private func file(_ text: String, at path: String = "Sources/A/A.swift") -> SourceFile {
        SourceFile(path: path, text: text)
    }

    @Test(arguments: [
        ("HTTPDoor", ["http", "door"]), ("isSHA256Known", ["is", "sha", "known"]), ("_told", ["told"]),
        ("a", ["a"]), ("IPv6Address", ["i", "pv", "address"]), ("CURL_SAID", ["curl", "said"]),
    ])
    func `an identifier is split into words`(identifier: String, words: [String]) {
        #expect(IdentifierRules.words(of: Substring(identifier)) == words)
    }

    @Test(arguments: IdentifierRules.forbidden.keys.map { String($0) })
    func `a forbidden word is found wherever it stands in an identifier`(word: String) {
        let title = word.prefix(1).uppercased() + word.dropFirst()
        for name in [word, "is\(title)", "\(word)Again", "HTTP\(title)s2\(title)", word.uppercased()] {
            #expect(IdentifierRules.violations(file("let \(name) = 1")).count == 1, "\(name)")
        }
        #expect(IdentifierRules.violations(file("let x\(word)x = 1")) == [])
    }

    @Test(arguments: IdentifierRules.forbiddenPairs) func `a forbidden pair is found`(pair: String) {
        let words = pair.split(separator: " ")
        let name = "\(words[0])\(words[1].prefix(1).uppercased())\(words[1].dropFirst())"
        #expect(IdentifierRules.violations(file("func \(name)() {}")).count == 1)
        #expect(IdentifierRules.violations(file("func \(words[1])() { \(words[0]) }")) == [])
    }

    @Test func `literals, comments and sentences are no identifiers`() {
        let text = """
            // told
            let a = "told"
            @Test func `who is told`() {}
            """
        #expect(IdentifierRules.violations(file(text)) == [])
        #expect(IdentifierRules.violations(file("func `told`() {}")).count == 1)
    }

    @Test func `in Python literals, comments and names of tests are no identifiers`() {
        let text = """
            # told
            def test_it_is_told(): return f'told "told' + "it's \\"told" // told  # told
            '''told
            "told'''; told = r"\\\\"; told()
            """
        #expect(
            IdentifierRules.violations(file(text, at: "Tests/a.py")).map { $0.prefix(12) } == [
                "Tests/a.py:2", "Tests/a.py:4", "Tests/a.py:4",
            ])
    }

    @Test func `a type of two targets is found and other declarations are not`() {
        let first = file(
            "struct A {\n    enum B { case c }\n    func d() {\n        struct E {}\n    }\n}\ntypealias F = Int")
        #expect(IdentifierRules.types(of: first).map(\.path) == ["A", "A.B", "F"])
        let second = { (text: String) in file(text, at: "Sources/B/B.swift") }
        for (text, count) in [
            ("final class A {}", 1), ("extension A {\n    struct B {}\n}", 1), ("extension A.B {}", 0),
            ("struct B {}", 0), ("struct E {}", 0), ("struct F {}", 1), ("import struct C.A", 0),
            ("let actor = A()", 0), ("class func A() {}\nstruct H {}", 0),
        ] {
            #expect(IdentifierRules.sharedTypes(in: [first, second(text)]).count == count, "\(text)")
        }
        #expect(IdentifierRules.sharedTypes(in: [first, file("struct A {}", at: "Sources/A/B.swift")]) == [])
    }
}
