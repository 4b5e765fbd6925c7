import Foundation
import Testing

/// `Tests/PROMISES.md` names the tests of each promise.
struct PromiseTests {
    @Test func `each promise of the documents has a test, which exists`() throws {
        let paths = try ["Tests", "examples", "protocols"].flatMap { try DocumentFolder.paths(below: $0) }
        let byName = Dictionary(grouping: paths) { $0.split(separator: "/").last.map(String.init) ?? "" }
        let sections = Promises.sections(try DocumentFolder.text("Tests/PROMISES.md"))
        #expect(sections.count >= 10 && sections.map(\.rows.count).reduce(0, +) >= 150)
        for section in sections {
            let (folder, name) = DocumentFolder.split(section.document)
            let items = Promises.items(try Document(name, in: folder).section(section.heading))
            #expect(!items.isEmpty, "\(section.document), \(section.heading)")
            let found = try section.violations(items: items) { try byName[$0, default: []].map(DocumentFolder.text) }
            for violation in found { Issue.record("\(violation)") }
        }
    }

    @Test func `a promise without a test, a test without a promise and a test that does not exist are found`() {
        let rows = "| promise | file | test |\n| --- | --- | --- |\n| one | T.swift | it holds |\n| | v.ear | |\n"
        let sections = Promises.sections("## a.md: B\n\n" + rows)
        #expect(sections.map(\.document) == ["a.md"] && sections.map(\.heading) == ["## B"])
        #expect(sections.flatMap(\.rows).map(\.promise) == ["one", "one"])
        func violations(_ items: [String], _ text: String) -> Int {
            sections[0].violations(items: items) { $0 == "T.swift" ? [text] : [""] }.count
        }
        let test = "func `it holds`() {"
        #expect(violations(["one item"], test) == 0)
        #expect(violations(["one item", "two"], test) == 1)
        #expect(violations(["one item", "one more"], test) == 1)
        #expect(violations(["one item"], "func `it does not hold`() {") == 1)
        #expect(Promises.items(["| a | b |", "| --- | --- |", "  | one | 1 |", "- no"]) == ["one"])
        #expect(Promises.items(["7. One", "- two", "three"]) == ["7", "two"])
    }
}
