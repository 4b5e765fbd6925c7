import EarshotLoop
import Glibc
import Testing

@testable import EarshotClient

/// The runtime folder of a bus: its search, its rights and its locks.
@Suite struct RuntimeFolderTests {
    @Test func `a folder is made for one user alone, and removed with all that is in it`() throws {
        let folder = try RuntimeFolder(named: Endpoint().path + "/deep/run//")
        #expect(try !folder.hasBroker())
        try folder.prepare()
        try folder.prepare()
        var status = stat()
        #expect(unsafe stat(folder.path, &status) == 0)
        #expect(status.st_mode & 0o777 == 0o700)
        #expect(folder.busEndpoint == "ipc://\(folder.path)/bus")
        PrivateFolder.remove(String(folder.path.dropLast("/deep/run".count)))
        #expect(try !folder.hasBroker())
    }

    @Test func `the removal of a link leaves the folder that it names`() throws {
        let folder = Endpoint().path
        defer { PrivateFolder.remove(folder) }
        try Folder.makeDirectory("\(folder)/inner", mode: 0o700)
        let link = Endpoint().path
        defer { unsafe unlink(link) }
        try #require(unsafe symlink(folder, link) == 0)
        PrivateFolder.remove(link)
        #expect(unsafe access("\(folder)/inner", F_OK) == 0)
    }

    @Test func `a folder is served while one of its locks is held`() throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        try folder.prepare()
        defer { PrivateFolder.remove(folder.path) }
        #expect(try !folder.hasBroker())
        for path in [folder.brokerLock, folder.supervisorLock] {
            let lock = try LockFile.acquire(path)
            #expect(try folder.hasBroker())
            withExtendedLifetime(lock) {}
        }
        #expect(try !folder.hasBroker())
    }

    @Test func `the folder of a session is used if no other user can change it`() throws {
        let base = Endpoint().path
        defer { PrivateFolder.remove(base) }
        try Folder.makeDirectory(base, mode: 0o755)
        #expect(try RuntimeFolder.ofSession(in: base) == nil)
        try Folder.makeDirectory("\(base)/\(geteuid())", mode: 0o700)
        #expect(try RuntimeFolder.ofSession(in: base)?.path == "\(base)/\(geteuid())/earshot")
        unsafe chmod("\(base)/\(geteuid())", 0o777)
        #expect(try RuntimeFolder.ofSession(in: base) == nil)
        unsafe rmdir("\(base)/\(geteuid())")
        unsafe symlink("/", "\(base)/\(geteuid())")
        #expect(try RuntimeFolder.ofSession(in: base) == nil, "a link")
    }

    @Test func `a folder that others may enter is refused`() throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        unsafe mkdir(folder.path, 0o750)
        unsafe chmod(folder.path, 0o750)
        defer { PrivateFolder.remove(folder.path) }
        let error = #expect(throws: ClientError.self) { try folder.prepare() }
        #expect(error?.code == .folder)
        #expect(throws: ClientError.self) { try folder.hasBroker() }
    }

    @Test func `the folder of a bus for several users can be read by all`() throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        unsafe mkdir(folder.path, 0o755)
        unsafe chmod(folder.path, 0o755)
        defer { PrivateFolder.remove(folder.path) }
        try folder.prepare(isShared: true)
        #expect(throws: ClientError.self) { try folder.prepare() }
        #expect(try folder.check() && !folder.isOwnedByOtherUser && !folder.hasBroker())
    }

    @Test func `a path too long for a socket is refused with the number`() throws {
        let error = #expect(throws: ClientError.self) {
            try RuntimeFolder(named: "/" + String(repeating: "x", count: 102))
        }
        #expect(error?.code == .pathTooLong)
        #expect(error?.description.contains("107") == true)
        #expect(try RuntimeFolder(named: "/" + String(repeating: "x", count: 101)).path.count == 102)
    }

    @Test func `partial bodies lie beside the cache`() throws {
        #expect(RuntimeFolder.partsPath(besideCache: "/a/cache/") == "/a/parts")
        #expect(RuntimeFolder.partsPath(besideCache: "/cache") == "/parts")
        #expect(RuntimeFolder.partsPath(besideCache: "") == nil)
        let cache = try RuntimeFolder.userCachePath()
        #expect(RuntimeFolder.partsPath(besideCache: nil) == cache.dropLast("cache".count) + "parts")
    }

    @Test func `the spool of a private bus lies beside the partial bodies, and ends with the bus`() throws {
        let base = Endpoint().path
        defer { PrivateFolder.remove(base) }
        let folder = try RuntimeFolder(named: "\(base)/tmp/earshot-abc")
        try folder.prepare()
        let spool = folder.makePrivateSpool(besideParts: "\(base)/cache/parts")
        #expect(spool == "\(base)/cache/private-abc/spool")
        #expect(unsafe access(spool, F_OK) == 0)
        folder.removePrivate(besideParts: "\(base)/cache/parts")
        #expect(unsafe access("\(base)/cache/private-abc", F_OK) != 0 && access(folder.path, F_OK) != 0)
        #expect(unsafe access("\(base)/cache", F_OK) == 0)
    }

    @Test func `without a usable folder the spool of a private bus is in its runtime folder`() throws {
        let folder = try RuntimeFolder(named: Endpoint().path)
        let open = Endpoint().path
        defer { PrivateFolder.remove(open) }
        try Folder.makeDirectory(open, mode: 0o700)
        unsafe chmod(open, 0o777)
        // No user can create folders in the second one, not even root.
        for parts in [nil, "/proc/earshot/parts", "\(open)/earshot/parts"] {
            #expect(folder.makePrivateSpool(besideParts: parts) == folder.innerSpoolPath)
        }
        #expect(unsafe access("\(open)/earshot", F_OK) != 0)
    }

    @Test func `a relative path becomes absolute`() throws {
        let current = unsafe getcwd(nil, 0)
        defer { unsafe free(current) }
        let folder = unsafe current.map { unsafe String(cString: $0) } ?? ""
        #expect(try RuntimeFolder(named: ".").path == folder)
        #expect(try RuntimeFolder(named: "./x/").path == "\(folder)/x")
    }
}
