import CLibZMQ
import Foundation
import Testing

/// The declarations of `CLibZMQ` stand in for libzmq's header.
@Suite struct DeclarationTests {
    /// The names and numbers that a header defines.
    private static func numbers(in header: String) throws -> [Substring: Int] {
        var found: [Substring: Int] = [:]
        for line in try String(contentsOfFile: header, encoding: .utf8).split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count >= 3, words[0] == "#define", words[1].hasPrefix("ZMQ_") else { continue }
            found[words[1]] = words[2].hasPrefix("0x") ? Int(words[2].dropFirst(2), radix: 16) : Int(words[2])
        }
        return found
    }

    @Test func `all numbers are those of libzmq's header`() throws {
        let root = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        let ours = try Self.numbers(in: "/\(root)/Sources/CLibZMQ/include/shim.h")
        let theirs = try Self.numbers(in: "/usr/include/zmq.h")
        #expect(ours.count > 40)
        for (name, number) in ours { #expect(theirs[name] == number, "\(name)") }
    }

    @Test func `a message is as large as libzmq's`() throws {
        let header = try String(contentsOfFile: "/usr/include/zmq.h", encoding: .utf8)
        let (size, alignment) = (MemoryLayout<zmq_msg_t>.size, MemoryLayout<zmq_msg_t>.alignment)
        #expect(header.contains("_[\(size)]"))
        #expect(alignment == MemoryLayout<Int>.alignment)
    }
}
