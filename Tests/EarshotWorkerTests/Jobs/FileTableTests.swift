import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWorker

/// Files that a worker in a sandbox gets from its broker.
@Suite struct FileTableTests {
    private var table = FileTable()

    private func refusal(_ path: String) -> Refusal? {
        do throws(Refusal) {
            _ = try table.content(ofPath: path, forField: "ca-file")
            return nil
        } catch {
            return error
        }
    }

    @Test mutating func `a file replaces the one at its place and its own earlier version`() throws {
        table.storeFile(at: 0, path: "/a", content: [1], error: nil)
        table.storeFile(at: 1, path: "/b", content: [2], error: nil)
        #expect(try table.content(ofPath: "/a", forField: "ca-file") == [1])
        table.storeFile(at: 1, path: "/a", content: [3], error: nil)
        #expect(try table.content(ofPath: "/a", forField: "ca-file") == [3])
        #expect(refusal("/b") != nil)
        table.storeFile(at: 0, path: "/b", content: [4], error: nil)
        #expect(try table.content(ofPath: "/b", forField: "ca-file") == [4])
    }

    @Test mutating func `a file that is missing or cannot be read is a refusal with its field`() {
        #expect(refusal("/a") == Refusal(.tls, "Cannot read the ca-file: the broker did not send it."))
        table.storeFile(at: 3, path: "/a", content: [], error: "No such file or directory")
        #expect(refusal("/a") == Refusal(.tls, "Cannot read the ca-file: No such file or directory."))
    }

    @Test mutating func `a place beyond the table is ignored`() {
        table.storeFile(at: WireLimits.filesPerWorker, path: "/a", content: [1], error: nil)
        #expect(refusal("/a") != nil)
    }
}
