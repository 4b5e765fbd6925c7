import EarshotLoop
import Foundation
import Testing

/// Files that another user could have prepared or could change are not trusted. Only root can create folders of other
/// users: see `Tests/Integration/test_trust.py`.
@Suite final class PrivateFolderTests {
    private let root = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"

    init() throws { try PrivateFolder.createWithParents(root) }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    private func make(_ name: String, _ mode: mode_t) -> String {
        let path = "\(root)/\(name)"
        unsafe mkdir(path, mode)
        unsafe chmod(path, mode)
        return path
    }

    private func mode(_ path: String) -> mode_t {
        var status = stat()
        return unsafe stat(path, &status) == 0 ? status.st_mode & 0o7777 : 0
    }

    private func reason(_ work: () throws -> Void) -> FolderError.Reason? {
        do {
            try work()
            return nil
        } catch {
            return (error as? FolderError)?.reason
        }
    }

    @Test func `what is missing is made for one user, with all above it`() throws {
        let path = "\(root)/a/b/c"
        #expect(try !PrivateFolder.existsClosed(path))
        #expect(try !PrivateFolder.existsStore(path))
        try PrivateFolder.makeOrCheckClosed(path)
        try PrivateFolder.makeOrCheckStore("\(root)/a/b/d")
        for made in ["a", "a/b", "a/b/c", "a/b/d"] { #expect(mode("\(root)/\(made)") == 0o700) }
        #expect(try PrivateFolder.existsClosed(path))
        #expect(try PrivateFolder.existsStore(path))
        #expect(try PrivateFolder.existsClosed(aroundSocket: "\(path)/work"))
    }

    @Test(arguments: [0o710, 0o701, 0o740, 0o777] as [mode_t])
    func `a closed folder is entered by nobody else`(mode: mode_t) {
        let path = make("open", mode)
        #expect(reason { try PrivateFolder.makeOrCheckClosed(path) } == .accessibleToOthers(mode: UInt32(mode)))
        #expect(reason { _ = try PrivateFolder.existsClosed(path) } == .accessibleToOthers(mode: UInt32(mode)))
        #expect(self.mode(path) == mode, "it is left as it was")
    }

    @Test func `an open folder is entered by all and written by its owner`() throws {
        let path = "\(root)/run"
        #expect(try !PrivateFolder.existsOwned(path))
        try PrivateFolder.makeOrCheckOpenable(path)
        #expect(mode(path) == 0o700)
        try PrivateFolder.setOpenToOthers(true, path: path)
        #expect(mode(path) == 0o755)
        #expect(try PrivateFolder.existsOwned(aroundSocket: "\(path)/work"))
        #expect(reason { _ = try PrivateFolder.existsClosed(path) } == .accessibleToOthers(mode: 0o755))
        try PrivateFolder.makeOrCheckOpenable(path)
        #expect(try PrivateFolder.trustedListeners(inFolder: path) == [geteuid()])
        try PrivateFolder.setOpenToOthers(false, path: path)
        #expect(mode(path) == 0o700)
    }

    @Test(arguments: [0o710, 0o750, 0o757, 0o775, 0o777, 0o754] as [mode_t])
    func `a runtime folder of another mode is neither open nor closed`(mode: mode_t) {
        let path = make("half", mode)
        for work in [PrivateFolder.makeOrCheckOpenable, { try PrivateFolder.setOpenToOthers(true, path: $0) }] {
            #expect(reason { try work(path) } == .accessibleToOthers(mode: UInt32(mode)))
        }
        #expect(
            reason { _ = try PrivateFolder.trustedListeners(inFolder: path) } == .accessibleToOthers(mode: UInt32(mode))
        )
        #expect(PrivateFolder.trustedListeners(atSocket: "\(path)/bus") == [geteuid()])
        #expect(self.mode(path) == mode, "it is left as it was")
    }

    @Test func `listeners of a missing folder or of a link are not trusted`() throws {
        #expect(try PrivateFolder.trustedListeners(inFolder: "\(root)/none") == nil)
        let link = "\(root)/link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: make("behind", 0o755))
        #expect(reason { _ = try PrivateFolder.trustedListeners(inFolder: link) } == .symbolicLink)
    }

    @Test func `others trust a folder below a sticky one only if root owns it`() throws {
        let path = "\(make("sticky", 0o1777))/run"
        try PrivateFolder.makeOrCheckClosed(path)
        #expect(throws: Never.self) { try PrivateFolder.checkPlacedByRoot(path, owner: 0) }
        #expect(throws: FolderError.self) { try PrivateFolder.checkPlacedByRoot(path, owner: 1234) }
    }

    @Test(arguments: [0o720, 0o702, 0o777, 0o770] as [mode_t])
    func `a store is written by nobody else`(mode: mode_t) {
        let path = make("store", mode)
        #expect(reason { try PrivateFolder.makeOrCheckStore(path) } == .writableByOthers(mode: UInt32(mode)))
        #expect(reason { _ = try PrivateFolder.existsStore(path) } == .writableByOthers(mode: UInt32(mode)))
        #expect(self.mode(path) == mode, "it is left as it was")
    }

    @Test func `a store that others may read is closed to them`() throws {
        let path = make("store", 0o755)
        #expect(try PrivateFolder.existsStore(path))
        #expect(mode(path) == 0o755, "to look changes nothing")
        try PrivateFolder.makeOrCheckStore(path)
        #expect(mode(path) == 0o700)
    }

    @Test func `neither is a link or a file`() throws {
        let target = make("target", 0o700)
        let link = "\(root)/link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target)
        let file = "\(root)/file"
        try Data().write(to: URL(filePath: file))
        for (path, wanted) in [(link, FolderError.Reason.symbolicLink), (file, .notFolder)] {
            #expect(reason { try PrivateFolder.makeOrCheckClosed(path) } == wanted)
            #expect(reason { try PrivateFolder.makeOrCheckStore(path) } == wanted)
        }
    }

    @Test(arguments: [(0o777, true), (0o770, true), (0o1777, false), (0o755, false)] as [(mode_t, Bool)])
    func `a store is in folders where nobody else can rename it`(mode: mode_t, isRefused: Bool) throws {
        let above = make("above", mode)
        let path = "\(above)/between/store"
        let wanted = isRefused ? FolderError.Reason.replaceableByOthers(above: above) : nil
        #expect(reason { _ = try PrivateFolder.existsStore(path) } == wanted, "it need not exist")
        #expect(reason { try PrivateFolder.makeOrCheckStore(path) } == wanted)
        // Also if a link leads into the folder and out of it again.
        try PrivateFolder.createWithParents("\(above)/between")
        try FileManager.default.createSymbolicLink(atPath: "\(root)/way", withDestinationPath: "above/./between")
        #expect(reason { try PrivateFolder.makeOrCheckStore("\(root)/way/linked") } == wanted)
        #expect(reason { try PrivateFolder.makeOrCheckStore("\(above)/../beside") } == wanted)
    }

    @Test func `a circle of links is no way`() throws {
        for (name, target) in [("one", "two"), ("two", "one")] {
            try FileManager.default.createSymbolicLink(atPath: "\(root)/\(name)", withDestinationPath: target)
        }
        #expect(reason { try PrivateFolder.makeOrCheckStore("\(root)/one/store") } != nil)
    }

    @Test func `a file of a store that is opened by its path is no link`() throws {
        let path = make("store", 0o700)
        try PrivateFolder.checkFiles(["index", "missing"], in: path)
        try Data().write(to: URL(filePath: "\(path)/plain"))
        try PrivateFolder.checkFiles(["plain"], in: path)
        try FileManager.default.createSymbolicLink(atPath: "\(path)/index", withDestinationPath: "\(root)/victim")
        #expect(reason { try PrivateFolder.checkFiles(["plain", "index"], in: path) } == .notOwnPlainFile("index"))
        try FileManager.default.linkItem(atPath: "\(path)/plain", toPath: "\(path)/second")
        #expect(reason { try PrivateFolder.checkFiles(["plain"], in: path) } == .notOwnPlainFile("plain"))
    }
}
