import Testing

/// Canaries: each rule is given a violation, which it must report, and permitted code, which it must not report.
@Suite struct CanaryTests {
    private func file(_ text: String, at path: String = "Sources/EarshotCore/Canary.swift") -> SourceFile {
        SourceFile(path: path, text: text)
    }

    @Test(arguments: [
        "import Foundation", "public import Glibc", "@testable internal import ZeroMQ",
        "import struct EarshotLoop.Loop",
        "@_exported import Logging",
    ])
    func `a forbidden import is found`(line: String) {
        #expect(Rules.forbiddenImports(file("// Words.\n" + line)).count == 1)
    }

    @Test func `an allowed import is none and a target without a row is one`() {
        #expect(Rules.forbiddenImports(file("public import EarshotWire\n// import Foundation")) == [])
        #expect(Rules.forbiddenImports(file("", at: "Sources/Novel/A.swift")).count == 1)
    }

    @Test(arguments: [
        (".package(url: \"https://host.example/a/swift-novel.git\", from: \"1.0.0\"),", "swift-novel"),
        ("    link \"novel\"", "libnovel"), ("linkerSettings: [.linkedLibrary(\"novel\")]", "libnovel"),
        ("LOADER_LIBRARY(novel, \"libnovel.so.1\", LOADER_SUGGESTED, \"novel\", \"\")", "libnovel"),
    ])
    func `a dependency without a licence text is found`(line: String, name: String) {
        #expect(Notices.dependencies(file(line)) == [name])
        let text = file(String(repeating: "words\n", count: 20), at: "packaging/notices/swift.txt")
        #expect(Notices.violations(dependencies: [name], texts: [text]).count == 1)
        let other = file(String(repeating: "words\n", count: 20), at: "packaging/notices/\(name).txt")
        #expect(Notices.violations(dependencies: [name], texts: [text, other]) == [])
        #expect(Notices.violations(dependencies: [], texts: [text, other]).count == 1)
    }

    @Test func `a seeded hash is found outside the core`() {
        for line in ["var hasher = Hasher()", "let number = name.hashValue"] {
            #expect(Rules.seededHashes(file(line, at: "Sources/EarshotCache/A.swift")).count == 1)
            #expect(Rules.seededHashes(file(line)) == [])
        }
        let witness = "func hash(into hasher: inout Hasher) { hasher.combine(values) }"
        #expect(Rules.seededHashes(file(witness, at: "Sources/EarshotCache/A.swift")) == [])
    }

    @Test func `a file of 601 lines is too long and one of 600 is not`() {
        #expect(Rules.tooLong(file(String(repeating: "\n", count: 601))).count == 1)
        #expect(Rules.tooLong(file(String(repeating: "\n", count: 600))) == [])
    }

    @Test(arguments: [
        "let a = try! b()", "fatalError(\"x\")", "final class A: @unchecked Sendable {}",
        "nonisolated(unsafe) var a = 1", "let a = b as! C",
    ])
    func `a promise without a reason is found`(line: String) {
        #expect(Rules.unexplained(file("let x = 1\n" + line)).count == 1)
        #expect(Rules.unexplained(file("// The loop alone owns it.\n" + line)) == [])
        #expect(Rules.unexplained(file("let x = \"\(line.replacing("\"", with: ""))\"")) == [])
    }

    @Test(arguments: ["TO" + "DO: later", "FIX" + "ME", "XX" + "X"])
    func `work left for later is found`(words: String) {
        #expect(Rules.unfinished(file("// " + words)).count == 1)
        #expect(Rules.unfinished(file("let mastodon = 1")) == [])
    }

    @Test(arguments: ["try await Task.sleep(for: .seconds(1))", "usleep(5)", "sleep(1)", "time.sleep(1)"])
    func `a sleep is found`(line: String) {
        #expect(Rules.sleeps(file(line, at: "Tests/XTests/A.swift")).count == 1)
        #expect(Rules.sleeps(file("// \(line)", at: "Tests/XTests/A.swift")) == [])
    }

    @Test(arguments: [
        "func a() async {}", "Task { }", "print(1)", "let p: UnsafeRawPointer", "let a = unsafe b",
        "ContinuousClock.now",
        "Int.random(in: 0..<5)", "SystemRandomNumberGenerator()",
    ])
    func `an impurity is found in a pure target alone`(line: String) {
        #expect(Rules.impure(file(line)).count == 1)
        #expect(Rules.impure(file(line, at: "Sources/EarshotLoop/A.swift")) == [])
    }

    @Test(arguments: ["let a = Handle<Flight>(index: 1)", "return Handle(place: 0)", "f(.init(place: 2))"])
    func `a handle made outside the storage of the core is found`(line: String) {
        #expect(Rules.madeHandles(file(line, at: "Sources/EarshotCore/Flights/A.swift")).count == 1)
        #expect(Rules.madeHandles(file(line, at: "Sources/EarshotCore/Storage/A.swift")) == [])
    }

    @Test func `a seeded random number is pure`() {
        #expect(Rules.impure(file("Int.random(in: 0..<5, using: &generator)")) == [])
    }

    @Test(arguments: ["wo" + "rk/main", "ho" + "me/someone/x", "tm" + "p/earshot"])
    func `a path of a machine is found and a relative one is not`(path: String) {
        #expect(Rules.machinePaths(file("let a = \"/\(path)\"")).count == 1)
        #expect(Rules.machinePaths(file("let a = \"$root/\(path)\"")) == [])
    }

    @Test(arguments: [
        "pip install @", "python3 -m pip install --user '@'", "pipx install pyzmq @==1.0", "uv add @", "see '@[tcp]'",
        "python3 -m @.worker a:b", "[\"-m\", \"@.worker\"]", "import @", "import os, json; import @.blocking",
        "from @ import connect", "from @.worker import Answer", "name = \"@\"",
    ])
    func `the Python package of another project is found`(line: String) {
        #expect(Rules.foreignPackages(file(line.replacing("@", with: "earshot"))).count == 1)
        for own in ["earshot_bus", "earshot-bus"] {
            #expect(Rules.foreignPackages(file(line.replacing("@", with: own))) == [])
        }
    }

    @Test func `a folder or a module of Swift with the name of the program is none`() {
        #expect(
            Rules.foreignPackages(file("@testable import earshot\npip install ./earshot\napt install ./earshot.deb"))
                == [])
    }

    @Test(arguments: [
        "public func a() {}", "    public var b = 1", "public let c: String?", "@inlinable public init?(a: A) {",
        "public struct D {}", "public static let e = \"f\"",
    ])
    func `an unexplained public declaration is found`(line: String) {
        #expect(Rules.undocumented(file(line)).count == 1)
        #expect(Rules.undocumented(file("/// What it is for.\n" + line)) == [])
        #expect(Rules.undocumented(file("/// What it is for.\n@frozen\n" + line)) == [])
        #expect(Rules.undocumented(file(line, at: "Sources/earshot/A.swift")) == [])
    }

    @Test func `what its type or a standard protocol explains needs no words`() {
        #expect(Rules.undocumented(file("public static func == (a: A, b: A) -> Bool { true }")) == [])
        #expect(Rules.undocumented(file("public var description: String { \"\" }")) == [])
        #expect(Rules.undocumented(file("public extension A {}\npublic import B")) == [])
        #expect(
            Rules.undocumented(
                file(
                    "public var handler: HandlerID\npublic var elapsedMilliseconds = 0\npublic init(handler: HandlerID) {"
                )) == [])
    }

    @Test func `comments and literals are not code`() {
        let file = file(#"let a = "// no \" comment" + b // try! c"# + "\n/* d\n e */ f")
        #expect(file.code == [#"let a = "" + b "#, "", " f"])
    }
}
