import Testing

/// Applies the rules to this checkout.
@Suite struct TidyTests {
    /// All Swift files of the package, read once.
    private static let files = Result { try Checkout.files(in: ["Sources", "Tests"], endings: [".swift"]) }

    private func swift() throws -> [SourceFile] { try Self.files.get() }

    private func sources() throws -> [SourceFile] { try swift().filter { $0.path.hasPrefix("Sources/") } }

    /// Records one issue per violation.
    private func expectNone(_ found: [String], sourceLocation: SourceLocation = #_sourceLocation) {
        for one in found {
            Issue.record("\(one)", sourceLocation: sourceLocation)
        }
    }

    @Test func `the checks read this package`() throws {
        let paths = try Set(swift().map(\.path))
        #expect(paths.contains("Tests/TidyTests/TidyTests.swift"))
        #expect(paths.contains { $0.hasPrefix("Sources/EarshotWire/") })
    }

    @Test func `a target imports what its layer may`() throws {
        expectNone(try sources().flatMap(Rules.forbiddenImports))
    }

    @Test func `every target is in the table of imports and every row is a target`() throws {
        #expect(try Set(Checkout.subfolders(of: "Sources")) == Set(Rules.imports.keys))
    }

    @Test func `a file has at most 600 lines`() throws {
        let python = try Checkout.files(in: ["Tests"], endings: [".py"])
        expectNone(try (swift() + python).flatMap(Rules.tooLong))
    }

    @Test func `a promise to the compiler says who keeps it`() throws {
        expectNone(try swift().flatMap(Rules.unexplained))
    }

    @Test func `nothing is left for later`() throws {
        let others = try Checkout.files(
            in: [".", "bin", "Tests", "Sources", "protocols"], endings: [".md", ".py", ".sh", ".h", "Package.swift"])
        expectNone(try (swift() + others).flatMap(Rules.unfinished))
    }

    @Test func `a test awaits an event and never sleeps`() throws {
        expectNone(try Checkout.files(in: ["Tests"], endings: [".swift", ".py"]).flatMap(Rules.sleeps))
    }

    @Test func `what decides is pure`() throws {
        expectNone(try sources().flatMap(Rules.impure))
    }

    @Test func `only the storage of the core makes handles`() throws {
        expectNone(try sources().flatMap(Rules.madeHandles))
    }

    @Test func `digests for other processes are made without seeded hashes`() throws {
        expectNone(try sources().flatMap(Rules.seededHashes))
    }

    @Test func `a mechanism of the core names no other one`() throws {
        let folders = try Set(Checkout.subfolders(of: "Sources/EarshotCore"))
        #expect(folders.isSuperset(of: Layers.mechanisms))
        expectNone(try sources().flatMap { Layers.namedMechanisms($0, folders: folders) })
    }

    @Test func `records and mechanisms are extended in their folders only`() throws {
        expectNone(try sources().flatMap(Layers.foreignExtensions))
    }

    @Test func `records decide nothing`() throws {
        expectNone(try sources().flatMap(Layers.rulesInRecords))
    }

    @Test func `a function of the core has at most 60 lines`() throws {
        expectNone(try sources().flatMap(Layers.longFunctions))
    }

    @Test func `at most three functions of the core call one another in a cycle`() throws {
        expectNone(Layers.cycles(in: try sources()))
    }

    @Test func `no path of a machine is in the tree`() throws {
        let folders = [".", "bin", "Sources", "Tests", "protocols", "examples", ".ci"]
        expectNone(try Checkout.files(in: folders, endings: [""]).flatMap(Rules.machinePaths))
    }

    @Test func `commands and imports name the own Python package`() throws {
        let folders = [".", "bin", "docs", "packaging", "Sources", "Tests", "protocols", "examples", ".ci"]
        expectNone(try Checkout.files(in: folders, endings: [""]).flatMap(Rules.foreignPackages))
    }

    @Test func `each dependency has a licence text in packaging/notices, and each text a dependency`() throws {
        let manifests = try Checkout.files(in: ["."], endings: ["Package.swift"])
        let shims = try Checkout.files(in: ["Sources"], endings: [".c", ".h", ".modulemap"])
        let found = Set(try (manifests + shims + sources()).flatMap(Notices.dependencies))
        #expect(found.isSuperset(of: ["swift-log", "libcurl", "libsqlite3", "libbrotlidec"]))
        let texts = try Checkout.files(in: ["packaging/notices"], endings: [""])
        expectNone(Notices.violations(dependencies: found, texts: texts))
    }

    @Test func `what is public is explained`() throws {
        expectNone(try sources().flatMap(Rules.undocumented))
    }

    @Test func `scripts run anywhere and stop at a fault`() throws {
        let scripts = try Checkout.files(in: ["bin", ".ci", ".githooks"], endings: [""])
        #expect(scripts.count >= 4)
        for script in scripts {
            #expect(script.lines.first == "#!/bin/sh", "\(script.path)")
            #expect(script.lines.contains("set -eu"), "\(script.path)")
        }
    }
}
