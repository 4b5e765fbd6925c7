import ArgumentParser
import EarshotLoop
import EarshotWire
import Foundation
import Testing

@testable import earshot

/// Files behind an output path: links, open descriptors, permissions and pipes.
@Suite struct OutputPathTests {
    private let folder = CommandFolder()

    private func link(_ name: String, to target: String) throws -> String {
        let path = folder.path + "/" + name
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
        return path
    }

    private func pipe(_ name: String) throws -> String {
        let path = folder.path + "/" + name
        try #require(unsafe mkfifo(path, 0o600) == 0)
        return path
    }

    private func isLink(_ path: String) -> Bool {
        (try? FileManager.default.destinationOfSymbolicLink(atPath: path)) != nil
    }

    private func mode(_ name: String) throws -> mode_t {
        var status = stat()
        try #require(unsafe stat(folder.path + "/" + name, &status) == 0)
        return status.st_mode & 0o777
    }

    @Test func `links lead to the file that is replaced, or to an open descriptor`() throws {
        let target = folder.path + "/target"
        #expect(try OutputPath(target) == .file(target))
        #expect(try OutputPath(link("relative", to: "target")) == .file(target))
        #expect(try OutputPath(link("second", to: "relative")) == .file(target))
        #expect(try OutputPath(link("own", to: "/proc/self/fd/17")) == .descriptor(17))
        #expect(try OutputPath(link("folder", to: "/dev/fd")) == .specialFile("/proc/self/fd"), "a directory")
        #expect(try OutputPath(folder.path + "/folder/17") == .descriptor(17))
        #expect(try OutputPath(link("thread", to: "/proc/thread-self/fd/3")) == .descriptor(3))
        let foreign = "/proc/\(getppid())/fd/0"
        #expect(try OutputPath(foreign) == .specialFile(foreign))
        let pipe = try pipe("pipe")
        #expect(try OutputPath(pipe) == .specialFile(pipe))
        #expect(try OutputPath(link("piped", to: "pipe")) == .specialFile(pipe))
        #expect(throws: OutputFailure.self) { try OutputPath(link("loop", to: "loop")) }
    }

    @Test func `a body is appended to the file of an open descriptor`() throws {
        let log = try folder.file("log", "old\n")
        let open = unsafe Glibc.open(log, O_WRONLY | O_APPEND | O_CLOEXEC)
        try #require(open >= 0)
        defer { close(open) }
        let path = try link("output", to: "/proc/self/fd/\(open)")
        var destination = Destination.file(path, interrupt: -1)
        #expect(destination.stream() == nil)
        #expect(try destination.write(.bytes(Array("new".utf8)), of: "http://h/x") == path)
        let spooled = try folder.file("spooled", "file")
        _ = try destination.write(.file(spooled, length: 4, isOwn: false), of: "http://h/x")
        #expect(try folder.text("log") == "old\nnewfile")
        #expect(isLink(path))
    }

    @Test func `a file is created where a link leads to`() throws {
        let path = try link("link", to: "target")
        var destination = Destination.file(path, interrupt: -1)
        _ = try destination.write(.bytes([65]), of: "http://h/x")
        #expect(try folder.text("target") == "A" && isLink(path))
    }

    @Test(arguments: [false, true])
    func `a replaced file keeps its permissions`(isMoved: Bool) throws {
        let target = try folder.file("target", "old")
        try #require(unsafe chmod(target, 0o640) == 0)
        var destination = Destination.file(target, interrupt: -1)
        let spooled = try folder.file("spooled", "new")
        _ = try destination.write(.file(spooled, length: 3, isOwn: isMoved), of: "http://h/x")
        #expect(try folder.text("target") == "new" && mode("target") == 0o640)
        #expect(try folder.names.contains("spooled") == !isMoved)
    }

    @Test func `a list of failures is readable by its owner alone`() throws {
        for _ in 0..<2 {
            try FailureList(folder.path + "/failed").finish()
            #expect(try mode("failed") == 0o600)
            try #require(unsafe chmod(folder.path + "/failed", 0o644) == 0)
        }
    }

    @Test func `a list of failures goes through links and named pipes`() throws {
        let entry = ListEntry(url: "http://h/a")
        let list = try FailureList(link("link", to: "target"))
        list.add(entry, name: nil, cause: "c")
        try list.finish()
        #expect(try folder.text("target") == "# c\nhttp://h/a\n" && isLink(folder.path + "/link"))

        let path = try pipe("pipe")
        let reader = unsafe Glibc.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        try #require(reader >= 0)
        defer { close(reader) }
        let piped = try FailureList(path)
        piped.add(entry, name: nil, cause: "c")
        try piped.finish()
        var bytes = [UInt8](repeating: 0, count: 100)
        let count = unsafe read(reader, &bytes, bytes.count)
        #expect(bytes.prefix(max(0, count)).elementsEqual("# c\nhttp://h/a\n".utf8))
        #expect(try folder.names == ["link", "pipe", "target"])
    }

    @Test(arguments: [[], ["-d", "o", "--json"], ["-d", "o", "-D", "-"], ["-I"], ["-o", "-"]])
    func `standard output has one use beside a list of failures`(arguments: [String]) {
        #expect(throws: (any Error).self) { try GetCommand.parse(arguments + ["--failed", "-", "http://h/1"]) }
        #expect(throws: Never.self) { try GetCommand.parse(["--failed", "-", "-d", "o", "http://h/1"]) }
    }

    @Test func `a signal ends the wait for the reader of a named pipe`() throws {
        let path = try pipe("pipe")
        let interrupt = try EventCounter()
        interrupt.signal()
        let isInterrupt = { (error: any Error) in (error as? CommandError)?.status == .interrupted }
        #expect(performing: { try HeaderOutput(path, interrupt: interrupt.descriptor) }, throws: isInterrupt)
        #expect(performing: { try FailureList(path, interrupt: interrupt.descriptor) }, throws: isInterrupt)
        var destination = Destination.file(path, interrupt: interrupt.descriptor)
        #expect(
            performing: { try destination.write(.bytes([65]), of: "http://h/x") },
            throws: { if case .interrupted? = $0 as? OutputFailure { true } else { false } })
    }

    @Test func `a terminal gets header fields without control characters`() {
        let fields = Array("x-a: b\u{9b}31m\u{202e}\nx-b: ".utf8) + [0xe9]
        #expect(
            String(decoding: HeaderOutput.headText(200, fields, isTerminal: true), as: UTF8.self)
                == "HTTP 200\nx-a: b\\u{9b}31m\\u{202e}\nx-b: \\xe9\n\n")
        #expect(
            HeaderOutput.headText(200, fields, isTerminal: false) == Array("HTTP 200\n".utf8) + fields + [0x0a, 0x0a])
        #expect(HeaderOutput.headText(204, [], isTerminal: false) == HeaderOutput.headText(204, [], isTerminal: true))
    }
}
