import EarshotLoop
import Foundation
import Testing

@testable import earshot

/// Links on the way to an output, and files of other users in shared folders.
@Suite struct OutputEntryTests {
    /// User that has neither the test nor the folder.
    private static let other: uid_t = 2

    private let folder = CommandFolder()

    /// Makes the test's folder one of another user.
    private func share(mode: mode_t) throws {
        try #require(unsafe chown(folder.path, 1, .max) == 0 && chmod(folder.path, mode) == 0)
    }

    private func link(_ name: String, to target: String, owner: uid_t) throws -> String {
        let path = folder.path + "/" + name
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
        try #require(unsafe lchown(path, owner, .max) == 0)
        return path
    }

    @Test func `a folder is found through links, and created where it is missing`() throws {
        let made = try OutputEntry.folder(folder.path + "/a//./b/", given: "", creates: true)
        #expect(made.containsFile(named: ByteText.cString("../b")))
        try FileManager.default.createSymbolicLink(atPath: folder.path + "/up", withDestinationPath: "a/../a")
        try FileManager.default.createSymbolicLink(
            atPath: folder.path + "/all", withDestinationPath: folder.path + "/up/b")
        #expect(try OutputEntry.folder(folder.path + "/all/..", given: "").containsFile(named: ByteText.cString("b")))
        #expect(throws: OutputFailure.self) { try OutputEntry(folder.path + "/none/x") }
        _ = try folder.file("file", "")
        #expect(throws: OutputFailure.self) {
            try OutputEntry.folder(folder.path + "/file/x", given: "", creates: true)
        }
        try FileManager.default.createSymbolicLink(atPath: folder.path + "/loop", withDestinationPath: "loop")
        #expect(throws: OutputFailure.self) { try OutputEntry.folder(folder.path + "/loop", given: "") }
    }

    @Test func `a link of proc leads to its folder`() throws {
        _ = try folder.file("file", "")
        let opened = try OpenFolder(folder.path)
        let path = "/proc/self/fd/\(opened.descriptor)/file"
        #expect(try OutputPath(path) == .file(path))
        #expect(try OutputEntry(path).fileStatus() != nil)
    }

    @Test(
        .enabled(if: geteuid() == 0, "only root gives files to others"),
        arguments: [0o1777, 0o1770, 0o1757] as [mode_t])
    func `an entry of another user in a shared sticky folder is refused`(mode: mode_t) throws {
        let file = try folder.file("file", "old")
        try #require(unsafe chown(file, Self.other, .max) == 0 && chmod(file, 0o666) == 0)
        let pipe = folder.path + "/pipe"
        try #require(unsafe mkfifo(pipe, 0o666) == 0 && chown(pipe, Self.other, .max) == 0)
        let link = try link("link", to: "new", owner: Self.other)
        let linked = try self.link("linked", to: folder.path, owner: Self.other) + "/new"
        try share(mode: mode)
        for path in [file, pipe, link, linked] {
            #expect(throws: OutputFailure.self) { try OutputPath(path) }
            #expect(throws: CommandError.self) { try HeaderOutput(path, interrupt: -1) }
            #expect(throws: CommandError.self) { try FailureList(path) }
            #expect(throws: CommandError.self) { try CookieFile.write([], to: path) }
            #expect(throws: CommandError.self) { try SecretFile.create(path, with: "x") }
            var destination = Destination.file(path, interrupt: -1)
            #expect(destination.existingFile(nil) == nil)
            #expect(throws: OutputFailure.self) { try destination.write(.bytes([65]), of: "http://h/x") }
        }
        var destination = try Destination.folder(folder.path, interrupt: -1)
        for name in ["file", "pipe", "link"] {
            #expect(destination.existingFile(name) == nil)
            #expect(throws: OutputFailure.self) {
                try destination.write(.bytes([65]), of: "http://h/\(name)")
            }
        }
        #expect(try folder.names == ["file", "link", "linked", "pipe"])
        #expect(try folder.text("file") == "old")
    }

    @Test(.enabled(if: geteuid() == 0, "only root gives files to others"))
    func `entries of the user and of the owner of the folder are used`() throws {
        for owner in [geteuid(), 1] {
            let link = try link("link\(owner)", to: "target\(owner)", owner: owner)
            try share(mode: 0o1777)
            for _ in 0..<2 {
                var destination = Destination.file(link, interrupt: -1)
                _ = try destination.write(.bytes([65]), of: "http://h/x")
                try #require(unsafe chown(folder.path + "/target\(owner)", owner, .max) == 0)
            }
            #expect(try folder.text("target\(owner)") == "A")
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root gives files to others"), arguments: [0o777, 0o1755] as [mode_t])
    func `only folders that are sticky and shared have this rule`(mode: mode_t) throws {
        let link = try link("link", to: "target", owner: Self.other)
        try share(mode: mode)
        #expect(try OutputPath(link) == .file(folder.path + "/target"))
    }
}
