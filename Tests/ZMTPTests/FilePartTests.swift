import EarshotLoop
import Glibc
import Testing

@testable import ZMTP

/// Parts of files as second frames.
@Suite struct FilePartTests {
    private static let content = (0..<400_000).map { UInt8(truncatingIfNeeded: $0 / 253) }

    /// Returns an unnamed file with the content.
    private func file(_ bytes: [UInt8]) throws -> Int32 {
        let file = try #require(UnnamedFile.openPrivate(in: "/tmp"))
        try #require(unsafe pwrite(file, bytes, bytes.count, 0) == bytes.count)
        return file
    }

    @Test func `a part of a file arrives between other messages`() throws {
        let (left, right) = try MessageStreamTests.pairOfStreams()
        let part = FilePart(try file(Self.content), offset: 100, count: 300_000)
        #expect(left.stream.send(Message(head: [1])))
        #expect(left.stream.send([2], part))
        #expect(left.stream.send(Message(head: [3], body: [4])))
        #expect(left.stream.unsentMessages == 3)
        #expect(left.stream.unsentBytes > 300_000)
        left.stream.flush()
        #expect(try left.loop.run(for: .seconds(60)) { right.messages.count == 3 })
        #expect(right.messages.map(\.head) == [[1], [2], [3]])
        #expect(right.messages[1].body == Array(Self.content[100..<300_100]))
        #expect((left.stream.unsentMessages, left.stream.unsentBytes) == (0, 0))
    }

    @Test func `a truncated file ends the connection`() throws {
        let (left, right) = try MessageStreamTests.pairOfStreams()
        let part = FilePart(try file([1, 2, 3]), offset: 0, count: 100_000)
        #expect(left.stream.send([2], part))
        left.stream.flush()
        #expect(left.stream.isHungUp)
        #expect(left.stream.isIdle)
        #expect(right.messages.isEmpty)
    }
}
