import EarshotDisk
import Foundation
import Testing

@Suite final class PartFolderTests {
    private let folder = FileManager.default.temporaryDirectory.path + "/parts-\(UUID().uuidString)"

    deinit { try? FileManager.default.removeItem(atPath: folder) }

    private func write(_ name: String, _ count: Int) throws {
        try Data(count: count).write(to: URL(filePath: "\(folder)/\(name)"))
    }

    @Test func `a missing folder has no parts`() throws {
        #expect(try PartFolder.totals(of: folder) == (0, 0))
        #expect(try PartFolder.clear(folder) == 0)
        #expect(!FileManager.default.fileExists(atPath: folder))
    }

    @Test func `bodies are counted, and removed with their heads`() throws {
        try FileManager.default.createDirectory(atPath: folder + "/growing", withIntermediateDirectories: true)
        for (name, count) in [("a.body", 10), ("a.head", 3), ("b.body", 5), ("growing/c", 3), ("salt", 32)] {
            try write(name, count)
        }
        #expect(try PartFolder.totals(of: folder) == (2, 15))
        #expect(try PartFolder.clear(folder) == 2)
        #expect(try PartFolder.totals(of: folder) == (0, 0))
        #expect(Set(try FileManager.default.subpathsOfDirectory(atPath: folder)) == ["growing", "salt"])
    }

    @Test func `a folder to which others can write is refused`() throws {
        try FileManager.default.createDirectory(
            atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o777])
        try FileManager.default.setAttributes([.posixPermissions: 0o777], ofItemAtPath: folder)
        try write("a.body", 10)
        #expect(throws: StoreError.self) { try PartFolder.totals(of: folder) }
        #expect(throws: StoreError.self) { try PartFolder.clear(folder) }
        #expect(FileManager.default.fileExists(atPath: folder + "/a.body"))
    }
}
