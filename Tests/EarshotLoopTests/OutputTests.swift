import EarshotLoop
import Foundation
import Testing

/// Blocking output of bytes and files.
@Suite struct OutputTests {
    /// More bytes than a pipe holds.
    private let bytes = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 / 7) }

    @Test func `bytes and files go whole into a file`() throws {
        let (source, target) = (try makeFile(bytes), try makeFile([]))
        defer { for file in [source, target] { close(file) } }
        let output = Output(target)
        #expect(output.write([1, 2, 3]) == .allWritten)
        #expect(output.copy(from: source, length: bytes.count) == .allWritten)
        #expect(try contents(target) == [1, 2, 3] + bytes)
    }

    @Test func `bytes and files go whole into a pipe that is read slowly`() throws {
        let source = try makeFile(bytes)
        defer { close(source) }
        let (reader, writer) = try InheritedPipe.make()
        let output = Output(writer)
        let bytes = bytes
        Thread.detachNewThread {
            _ = output.write(bytes)
            _ = output.copy(from: source, length: bytes.count)
            close(writer)
        }
        var got: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 5000)
        while case let count = unsafe read(reader, &buffer, buffer.count), count > 0 { got += buffer[..<count] }
        close(reader)
        #expect(got == bytes + bytes)
    }

    @Test func `a file goes whole to the end of a file opened for appending`() throws {
        let (source, path) = (try makeFile(bytes), temporaryPath("appended"))
        let target = unsafe open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        defer { for file in [source, target] { close(file) } }
        unsafe unlink(path)
        #expect(Output(target).write([1, 2, 3]) == .allWritten)
        #expect(Output(target).copy(from: source, length: bytes.count) == .allWritten)
        #expect(try contents(target) == [1, 2, 3] + bytes)
    }

    @Test func `a source that ends too early is told`() throws {
        let (source, target) = (try makeFile([1, 2]), try makeFile([]))
        defer { for file in [source, target] { close(file) } }
        #expect(Output(target).copy(from: source, length: 3) == .sourceTooShort)
    }

    @Test func `a device takes a file too`() throws {
        let source = try makeFile(bytes)
        let device = unsafe open("/dev/null", O_WRONLY | O_CLOEXEC)
        defer { for file in [source, device] { close(file) } }
        #expect(Output(device).copy(from: source, length: bytes.count) == .allWritten)
    }

    @Test func `a full device is an error`() throws {
        let device = unsafe open("/dev/full", O_WRONLY | O_CLOEXEC)
        defer { close(device) }
        #expect(Output(device).write([1]) == .failed(ENOSPC))
    }

    @Test func `a reader that is gone is reported`() throws {
        SignalSource.ignoreWriteSignals()
        let (reader, writer) = try InheritedPipe.make()
        close(reader)
        defer { close(writer) }
        // Another test's child holds a copy of the reader until it executes its program.
        var polled = pollfd(fd: writer, events: 0, revents: 0)
        #expect(unsafe poll(&polled, 1, 60_000) == 1)
        #expect(Output(writer).write([1]) == .readerClosed)
    }

    @Test func `a reader that stands still does not hold one who was interrupted`() throws {
        let (reader, writer) = try InheritedPipe.make()
        defer { for end in [reader, writer] { close(end) } }
        let interrupt = try EventCounter()
        Thread.detachNewThread { interrupt.signal() }
        #expect(Output(writer, interruptDescriptor: interrupt.descriptor).write(bytes) == .interrupted)
    }

    @Test func `what a pipe was made to hold is read to its end`() throws {
        #expect(try InheritedPipe.readAll(InheritedPipe.makeReader(containing: "secret")) == "secret")
        let (reader, writer) = try InheritedPipe.make()
        InheritedPipe.reportReady(writer)
        #expect(try InheritedPipe.readAll(reader) == "ready\n")
    }

    @Test func `the byte of a pipe differs from its end`() throws {
        let (reader, writer) = try InheritedPipe.make()
        InheritedPipe.reportReady(writer)
        #expect(InheritedPipe.awaitByte(reader))
        let (other, unused) = try InheritedPipe.make()
        close(unused)
        #expect(!InheritedPipe.awaitByte(other))
    }

    /// Returns an open file without a name.
    private func makeFile(_ bytes: [UInt8]) throws -> Int32 {
        let path = temporaryPath("output")
        let file = unsafe open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        try #require(file >= 0)
        unsafe unlink(path)
        try #require(Output(file).write(bytes) == .allWritten)
        lseek(file, 0, SEEK_SET)
        return file
    }

    private func contents(_ file: Int32) throws -> [UInt8] {
        lseek(file, 0, SEEK_SET)
        var got = [UInt8](repeating: 0, count: 1 << 20)
        let count = unsafe read(file, &got, got.count)
        return Array(got[..<max(0, count)])
    }
}
