import EarshotLoop
import Foundation
import Testing

/// Notices of the kernel about files and folders that are removed or moved.
@Suite final class RemovalWatchTests {
    private let root = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"
    private let watch: RemovalWatch

    init() throws {
        watch = try RemovalWatch()
        try PrivateFolder.createWithParents(root)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Returns whether an event arrived since the last call. The kernel queues it before the causing system call
    /// returns.
    private func isNoticed() -> Bool {
        var entry = pollfd(fd: watch.descriptor, events: Int16(POLLIN), revents: 0)
        let isReadable = unsafe poll(&entry, 1, 0) == 1
        watch.discardPendingEvents()
        return isReadable
    }

    private func write(_ path: String) throws { try Data("x".utf8).write(to: URL(filePath: path)) }

    @Test func `the removal and the move of an entry are noticed and its use is not`() throws {
        for name in ["a", "b"] { try write("\(root)/\(name)") }
        watch.watchEntries(of: root)
        try write("\(root)/c")
        #expect(!isNoticed())
        try FileManager.default.removeItem(atPath: "\(root)/a")
        #expect(isNoticed())
        try FileManager.default.moveItem(atPath: "\(root)/b", toPath: root + "-b")
        #expect(isNoticed())
        try FileManager.default.removeItem(atPath: root + "-b")
        #expect(!isNoticed())
    }

    @Test func `the removal of a file is noticed though it is open, and that of others in its folder is not`() throws {
        let path = "\(root)/lock"
        let lock = try LockFile.acquire(path)
        watch.watchFile(path)
        #expect(lock?.isInPlace(at: path) == true)
        try write("\(root)/other")
        try FileManager.default.removeItem(atPath: "\(root)/other")
        #expect(!isNoticed())
        try FileManager.default.removeItem(atPath: path)
        #expect(isNoticed())
        #expect(lock?.isInPlace(at: path) == false)
        let next = try LockFile.acquire(path)
        #expect(lock?.isInPlace(at: path) == false && next?.isInPlace(at: path) == true)
    }

    @Test func `the move of a folder or of one above it is noticed, and what happens in them is not`() throws {
        let folder = "\(root)/a/b"
        for move in ["a", "a/b"] {
            try PrivateFolder.createWithParents(folder)
            watch.watchMoves(of: folder)
            try write("\(folder)/file")
            try FileManager.default.moveItem(atPath: "\(folder)/file", toPath: "\(root)/a/file")
            try FileManager.default.removeItem(atPath: "\(root)/a/file")
            #expect(!isNoticed())
            try FileManager.default.moveItem(atPath: "\(root)/\(move)", toPath: "\(root)/moved")
            #expect(isNoticed())
            try FileManager.default.removeItem(atPath: "\(root)/moved")
            _ = isNoticed()
        }
    }
}
