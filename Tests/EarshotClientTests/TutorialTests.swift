import EarshotLoop
import Foundation
import Glibc
import Testing

@testable import EarshotClient

/// Runs the programs of the tutorial, and compares them with the articles.
@Suite(.timeLimit(.minutes(10)), .serialized) struct TutorialTests {
    private let origin: ThreadOrigin
    private let kept: KeptBus

    init() throws {
        let page = ThreadOrigin.Page(count: 10)
        origin = try ThreadOrigin(pages: [
            "/": page, "/a": page, "/b": page, "/large": .init(count: 300_000),
            "/missing": .init(status: 404, count: 9),
        ])
        kept = try KeptBus()
    }

    /// Runs programs on one bus and returns their output.
    private func run(_ programs: (Tutorial) async throws -> Void...) async throws -> [String] {
        let bus = try await kept.connect()
        let tutorial = Tutorial(site: origin.url("").removingLast, url: "size:" + origin.url("a"), bus: bus)
        for program in programs { try await program(tutorial) }
        await bus.close()
        return tutorial.output.versionedValue.value
    }

    @Test func `the programs of the first article run`() async throws {
        #expect(try await run { try await $0.firstFetch() } == ["200 network", "10 bytes"])
    }

    @Test func `a failure has a code and a status`() async throws {
        #expect(try await run { try await $0.failure() } == ["http-status 404 false"])
    }

    @Test func `concurrent requests all end`() async throws {
        let urls = try await run { try await $0.concurrency() }.map { $0.split(separator: " ")[0] }.sorted()
        #expect(urls == [origin.url("a"), origin.url("a"), origin.url("b")].map { $0[...] })
    }

    @Test func `the programs about removal run`() async throws {
        let lines = try await run(
            { try await $0.removal() }, { try await $0.replacement() }, { try await $0.cancellation() },
            { try await $0.removalByName() })
        #expect(
            lines == [
                "page: removed", "second: 200", "first: replaced", "cancelled", "3 removed", "tutorial/page/1 removed",
            ])
    }

    @Test func `the programs about streaming run`() async throws {
        let lines = try await run(
            { try await $0.streaming() }, { try await $0.progress() }, { try await $0.watching() })
        #expect(lines.first == "300000 of 300000 bytes")
        #expect(lines.suffix(3) == ["300000 of 300000", "300000 bytes", "tutorial/stream 200"])
    }

    @Test func `a durable request is claimed after a restart of the bus`() async throws {
        #expect(try await run { try await $0.submission() } == ["stored"])
        kept.kill()
        #expect(try await run { try await $0.claim() } == ["2026-11 10 bytes"])
    }

    @Test func `a worker's program serves its scheme`() async throws {
        #expect(try await run { try await $0.worker() } == ["10"])
        kept.kill()
        let lines = try await run { tutorial in
            let worker = try ChildProcess.spawn(
                StormTests.program,
                ["earshot", "work", "--runtime", kept.folder.path, "--scheme", "size", "--", "/bin/echo", "-n"])
            defer { KeptBus.end(worker, SIGTERM) }
            // The scheme is unsupported until the worker has registered.
            while (try? await tutorial.bus.handler().fetch("size:x")) == nil { await Task.yield() }
            try await tutorial.workerClient()
        }
        #expect(lines == ["size:" + origin.url("a")])
    }

    // MARK: Articles

    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    private static let connection = "let bus = try await Bus.connect()\n\n"
    private static let starts = [
        "import EarshotClient\n\nlet site = \"https://example.org\"\n" + connection,
        "import EarshotClient\n\nlet url = CommandLine.arguments.last ?? \"\"\n" + connection,
    ]

    /// Returns the code blocks of all articles without their first lines.
    private static func articleCode() throws -> [String] {
        let folder = root.appending(path: "Sources/EarshotClient/EarshotClient.docc")
        let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        return try files.filter { $0.pathExtension == "md" }.flatMap { file in
            try String(contentsOf: file, encoding: .utf8).split(separator: "\n```swift\n").dropFirst().map { rest in
                let block = rest.split(separator: "\n```\n", maxSplits: 1, omittingEmptySubsequences: false)[0]
                let start = try #require(
                    starts.first { block.hasPrefix($0) }, "\(file.path) has another start: \(block)")
                return String(block.dropFirst(start.count))
            }
        }
    }

    /// Returns the bodies of the functions of `Tutorial` that are programs.
    private static func programCode() throws -> [String] {
        let file = root.appending(path: "Tests/EarshotClientTests/Tutorial.swift")
        return try String(contentsOf: file, encoding: .utf8).split(separator: "() async throws {\n").dropFirst().map {
            let lines = $0.split(separator: "\n", omittingEmptySubsequences: false).prefix { $0 != "    }" }
            return lines.map { $0.dropFirst(8) }.joined(separator: "\n")
        }
    }

    @Test func `the code of the articles is that of the programs`() throws {
        let (articles, programs) = (try Self.articleCode(), try Self.programCode())
        #expect(programs.count == 14)
        for program in programs { #expect(articles.contains(program), "no article has this program: \(program)") }
        for article in articles { #expect(programs.contains(article), "not tested: \(article)") }
    }
}

extension String {
    fileprivate var removingLast: String { String(dropLast()) }
}
