import RESP
import Testing

/// Replies parsed from the bytes of a server, and commands in the form of the protocol.
@Suite struct RESPTests {
    private func replies(_ text: String, piece: Int = .max, most: Int = 1_000) throws -> [Reply] {
        var reader = ReplyReader(maximumReplyBytes: most)
        var replies: [Reply] = []
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            try reader.feed(rest.prefix(piece), into: &replies)
            rest = rest.dropFirst(piece)
        }
        return replies
    }

    @Test(arguments: [1, 3, 1_000])
    func `replies of each type are parsed from pieces of any size`(piece: Int) throws {
        let text = "+OK\r\n-ERR no\r\n:-5\r\n$3\r\na\0b\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n*-1\r\n*0\r\n"
        #expect(
            try replies(text, piece: piece) == [
                .status("OK"), .error("ERR no"), .integer(-5), .bulkString([97, 0, 98]), .null,
                .array([.integer(1), .array([.bulkString([])])]), .null, .array([]),
            ])
    }

    @Test(arguments: [
        "HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\0\0", ":1x\r\n", "$99999999999999999999\r\n",
        "*5000\r\n", "*2147483647\r\n", "*-7\r\n", ":\r\n", ":+5\r\n", "+OK\n", "\n", "$-2\r\n",
        "$1\r\nab\r\n", "$\r\n",
        "$1001\r\n", "+" + String(repeating: "a", count: 1_000), "%1\r\n", "_\r\n",
        String(repeating: "*1\r\n", count: 12) + ":1\r\n",
    ])
    func `bytes that are no reply are an error, and so is everything after them`(text: String) throws {
        var reader = ReplyReader(maximumReplyBytes: 1_000)
        var replies: [Reply] = []
        #expect(throws: ReplyReader.MalformedReply.self) { try reader.feed(Array(text.utf8)[...], into: &replies) }
        #expect(throws: ReplyReader.MalformedReply.self) {
            try reader.feed(Array("+OK\r\n".utf8)[...], into: &replies)
        }
        #expect(replies == [])
    }

    @Test func `a reply beyond the bound is an error before it is complete`() throws {
        let half = "$600\r\n" + String(repeating: "a", count: 600) + "\r\n"
        for text in ["$5000\r\n", "*2\r\n" + half + half.dropLast(200)] {
            #expect(throws: ReplyReader.MalformedReply.self) { try replies(text, piece: 100) }
        }
        #expect(try replies("$900\r\n" + String(repeating: "a", count: 900) + "\r\n").count == 1)
    }

    @Test func `a reply without a command is no failure of the process`() throws {
        #expect(try replies("+OK\r\n*1\r\n$7\r\nmessage\r\n").count == 2)
    }

    @Test func `a command has its arguments as bytes`() throws {
        var command = Command("SET", "a b")
        command.append([0, 13, 10])
        command.append("")
        var output = Array("x".utf8)
        command.encode(into: &output)
        #expect(
            output == Array("x*4\r\n$3\r\nSET\r\n$3\r\na b\r\n$3\r\n".utf8) + [0, 13, 10] + Array("\r\n$0\r\n\r\n".utf8)
        )
        #expect(command.words == ["SET", "a b", "\0\r\n", ""])
    }
}
