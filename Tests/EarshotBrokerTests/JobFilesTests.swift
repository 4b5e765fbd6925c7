import EarshotLoop
import EarshotWire
import Foundation
import Testing

@testable import EarshotBroker

/// Files that jobs name, as workers in a sandbox get them.
@Suite final class JobFilesTests {
    private let root = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"
    private var files = JobFiles(hasPredecessor: false)

    init() throws {
        try PrivateFolder.createWithParents(root)
        files.workerJoined(1)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Writes a file whose last change is old enough for a version.
    private func write(_ name: String, _ text: String, age: TimeInterval = 60) throws -> String {
        let path = "\(root)/\(name)"
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        try FileManager.default.setAttributes([.modificationDate: Date(timeIntervalSinceNow: -age)], ofItemAtPath: path)
        return path
    }

    private func route(_ authorities: String, _ certificate: String? = nil) -> Route {
        var route = Route()
        route.caFile = authorities
        route.clientCertificate = certificate
        return route
    }

    /// Messages as `place content`, or `place error`.
    private func messages(_ route: Route, to worker: UInt64 = 1) -> [String] {
        files.fileMessages(for: route, to: worker).map { message, content in
            guard case .fileContent(let place, _, let error) = message else { return "?" }
            return "\(place) " + (error ?? String(decoding: content ?? [], as: UTF8.self))
        }
    }

    @Test func `a worker that opens files itself gets none, and a route without files needs none`() throws {
        let path = try write("a", "A")
        #expect(messages(route(path), to: 2) == [])
        #expect(messages(Route()) == [])
    }

    @Test func `a file is sent to each worker, and once more after a change`() throws {
        let path = try write("a", "A")
        files.workerJoined(2)
        #expect(messages(route(path, path)) == ["0 A", "0 A"], "its inode changed just now")
        #expect(messages(route(path), to: 2) == ["0 A"])
        _ = try write("a", "B")
        #expect(messages(route(path)) == ["0 B"])
    }

    @Test func `the file named least recently makes room`() throws {
        let paths = try (0...WireLimits.filesPerWorker).map { try write("\($0)", "\($0)") }
        for (place, path) in paths.dropLast().enumerated() {
            #expect(messages(route(path)).last == "\(place) \(place)")
        }
        _ = messages(route(paths[0]))
        #expect(messages(route(paths[WireLimits.filesPerWorker])).last == "1 \(WireLimits.filesPerWorker)")
        #expect(messages(route(paths[0])).allSatisfy { $0 == "0 0" })
    }

    @Test func `a file that cannot be read is an error, each time`() throws {
        let empty = try write("empty", "")
        for _ in 0..<2 {
            #expect(messages(route("\(root)/none")) == ["0 No such file or directory"])
            #expect(messages(route(root)) == ["1 it is not a regular file"])
            #expect(messages(route(empty)) == ["2 it is empty or longer than \(WireLimits.fileBytes) bytes"])
        }
        let path = try write("none", "now")
        #expect(messages(route(path)) == ["0 now"])
    }

    @Test func `the hosts file is looked at once a second, and sent after a change only`() {
        let start = LoopTime.readClock()
        #expect(files.changedHostsMessage(now: start) == nil)
        var later = JobFiles(hasPredecessor: true)
        later.workerJoined(7)
        #expect(later.changedHostsMessage(now: start)?.workers == [7])
        #expect(later.changedHostsMessage(now: start.advanced(by: .seconds(2))) == nil)
    }
}
