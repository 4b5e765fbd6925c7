import Foundation
import Testing

@testable import earshot

/// Destinations of bodies: a folder, one file and devices.
@Suite struct DestinationTests {
    private let folder = CommandFolder()

    private func body(_ text: String) -> OutputBody { .bytes(Array(text.utf8)) }

    @Test func `bodies in a folder have the names of their URLs, each once`() throws {
        var destination = try Destination.folder(folder.path + "/out", interrupt: -1)
        let paths = try ["a", "b", "a"].map { name in
            try destination.write(body(name), of: "http://h/\(name).txt?q")
        }
        #expect(paths == ["a.txt", "b.txt", "a-2.txt"].map { folder.path + "/out/" + $0 })
        #expect(try folder.text("out/a-2.txt") == "a")
        #expect(destination.replacedFileCount == 0)
    }

    @Test func `a kept body replaces no file, and finds its own again`() throws {
        _ = try folder.file("a", "other")
        let hash = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
        for _ in 1...2 {
            var destination = try Destination.folder(folder.path, interrupt: -1)
            #expect(try destination.keepBody(body("k"), of: "http://h/a", sha256: hash) == folder.path + "/a-2")
            #expect(try destination.keepBody(body("k"), of: "http://h/b", sha256: hash) == folder.path + "/b")
        }
        #expect(try folder.text("a") == "other" && folder.text("a-2") == "k")
        var destination = try Destination.folder(folder.path, interrupt: -1)
        #expect(try destination.keepBody(body("l"), of: "http://h/b", sha256: nil) == folder.path + "/b-2")
        #expect(try folder.names == ["a", "a-2", "b", "b-2"])
    }

    @Test func `a file of an earlier run is replaced and counted`() throws {
        _ = try folder.file("a.txt", "before, and longer")
        var destination = try Destination.folder(folder.path, interrupt: -1)
        #expect(try destination.write(body("after"), of: "http://h/a.txt") == folder.path + "/a.txt")
        #expect(try folder.text("a.txt") == "after")
        #expect(destination.replacedFileCount == 1)
        #expect(try folder.names == ["a.txt"], "nothing else is left")
    }

    @Test func `a link in the folder is replaced and not followed`() throws {
        let outside = try folder.file("outside", "kept")
        var destination = try Destination.folder(folder.path + "/out", interrupt: -1)
        try FileManager.default.createSymbolicLink(atPath: folder.path + "/out/a", withDestinationPath: outside)
        _ = try destination.write(body("new"), of: "http://h/a")
        #expect(try folder.text("outside") == "kept")
        #expect(try folder.text("out/a") == "new")
    }

    @Test func `the one file keeps its place behind a link`() throws {
        let target = try folder.file("target", "before")
        try FileManager.default.createSymbolicLink(atPath: folder.path + "/link", withDestinationPath: target)
        var destination = Destination.file(folder.path + "/link", interrupt: -1)
        #expect(destination.onlyFile == folder.path + "/link")
        #expect(try destination.write(body("after"), of: "http://h/x") == folder.path + "/link")
        #expect(try folder.text("target") == "after")
        #expect(try folder.names == ["link", "target"])
    }

    @Test func `a device is written to and not replaced`() throws {
        var destination = Destination.file("/dev/null", interrupt: -1)
        #expect(destination.stream() == nil)
        #expect(try destination.write(body("x"), of: "http://h/x") == "/dev/null")
        #expect(FileManager.default.fileExists(atPath: "/dev/null"))
    }

    @Test func `a body of the spool is copied, and left there`() throws {
        let source = try folder.file("spooled", "content")
        var destination = Destination.file(folder.path + "/out", interrupt: -1)
        _ = try destination.write(.file(source, length: 7, isOwn: false), of: "http://h/x")
        #expect(try folder.text("out") == "content")
        #expect(try folder.names == ["out", "spooled"])
    }

    @Test(arguments: [6, 8])
    func `a body of the spool with another length is lost and costs nothing`(length: Int) throws {
        let source = try folder.file("spooled", "content")
        var destination = try Destination.folder(folder.path + "/out", interrupt: -1)
        #expect(throws: OutputFailure.self) {
            try destination.write(.file(source, length: length, isOwn: false), of: "http://h/x")
        }
        #expect(try destination.write(body("x"), of: "http://h/x") == folder.path + "/out/x", "its name is free")
    }

    @Test func `a folder that cannot be made is a complaint`() throws {
        let file = try folder.file("file", "")
        #expect {
            try Destination.folder(file + "/below", interrupt: -1)
        } throws: { error in
            (error as? CommandError)?.status == .cannotWrite
        }
    }

    @Test func `bodies that are not kept are written nowhere`() throws {
        var destination = Destination.nowhere()
        #expect(try destination.write(body("x"), of: "http://h/x") == nil)
        #expect(destination.stream() == nil)
        #expect(!destination.canMoveFiles(from: folder.path))
    }
}
