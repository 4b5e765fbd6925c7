import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotWorker

/// Files that a worker in a sandbox gets from its broker.
@Suite struct FileTableTests {
    private var table = FileTable()

    private func refusal(_ path: String) -> Refusal? {
        do throws(Refusal) {
            _ = try table.content(path, "ca-file")
            return nil
        } catch {
            return error
        }
    }

    @Test mutating func `a file replaces the one at its place and its own earlier version`() throws {
        table.put(0, "/a", [1], nil)
        table.put(1, "/b", [2], nil)
        #expect(try table.content("/a", "ca-file") == [1])
        table.put(1, "/a", [3], nil)
        #expect(try table.content("/a", "ca-file") == [3])
        #expect(refusal("/b") != nil)
        table.put(0, "/b", [4], nil)
        #expect(try table.content("/b", "ca-file") == [4])
    }

    @Test mutating func `a file that is missing or cannot be read is a refusal with its field`() {
        #expect(refusal("/a") == Refusal(.tls, "Cannot read the ca-file: the broker did not send it."))
        table.put(3, "/a", [], "No such file or directory")
        #expect(refusal("/a") == Refusal(.tls, "Cannot read the ca-file: No such file or directory."))
    }

    @Test mutating func `a place beyond the table is ignored`() {
        table.put(WireLimits.files, "/a", [1], nil)
        #expect(refusal("/a") != nil)
    }
}
