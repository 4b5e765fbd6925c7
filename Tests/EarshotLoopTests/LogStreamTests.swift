import EarshotLoop
import Foundation
import Testing

/// Log lines whose reader is slow.
@Suite struct LogStreamTests {
    /// A line of 100 bytes, so that lines fill a pipe completely or leave a rest.
    private let line = Array((String(repeating: "x", count: 99) + "\n").utf8)

    @Test(arguments: [false, true])
    func `lines that a full stream does not take are dropped, counted and reported`(isSocket: Bool) throws {
        let (reader, writer) = try ends(isSocket: isSocket)
        defer { for end in [reader, writer] { close(end) } }
        let stream = LogStream(writer)
        // More than a pipe or socket holds. A stream that blocked would not return.
        let most = 20_000
        for _ in 0..<most { stream.write(line, droppedLinesReport: report) }
        let first = read(reader)
        let whole = first.count { $0.count == line.count - 1 }
        #expect(whole > 100 && whole < most)
        stream.write(line, droppedLinesReport: report)
        let later = read(reader).filter { !$0.isEmpty }
        #expect(later.last == Array(line.dropLast()) && later.count <= 2)
        // The report is shorter than a line, so it may fit where no line does.
        let reports = (first + later).map { String(decoding: $0, as: UTF8.self).split(separator: " ") }
        let dropped = reports.reduce(0) { $0 + ($1.first == "dropped" ? Int($1[1]) ?? 0 : 0) }
        #expect(dropped == most - whole)
    }

    @Test func `a pipe keeps its flags, which other programs share`() throws {
        let (reader, writer) = try InheritedPipe.make()
        defer { for end in [reader, writer] { close(end) } }
        let flags = fcntl(writer, F_GETFL)
        LogStream(writer).write(line, droppedLinesReport: report)
        #expect(flags == fcntl(writer, F_GETFL) && flags & O_NONBLOCK == 0)
    }

    @Test func `a file takes all lines at its end`() throws {
        let path = temporaryPath("log")
        let file = unsafe open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        defer { close(file) }
        unsafe unlink(path)
        unsafe #expect(write(file, "old\n", 4) == 4)
        let stream = LogStream(file)
        for _ in 0..<1_000 { stream.write(line, droppedLinesReport: report) }
        var status = stat()
        unsafe #expect(fstat(file, &status) == 0 && status.st_size == 4 + 1_000 * line.count)
    }

    private func report(_ count: Int) -> [UInt8] { Array("dropped \(count)\n".utf8) }

    private func ends(isSocket: Bool) throws -> (reader: Int32, writer: Int32) {
        guard isSocket else { return try InheritedPipe.make() }
        var ends: [Int32] = [0, 0]
        try unsafe #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        return (ends[0], ends[1])
    }

    /// Returns the lines that wait in a pipe or socket, and the rest of an incomplete one.
    private func read(_ descriptor: Int32) -> [[UInt8]] {
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while case let count = unsafe Glibc.read(descriptor, &buffer, buffer.count), count > 0 {
            bytes += buffer[..<count]
        }
        return bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map(Array.init)
    }
}
