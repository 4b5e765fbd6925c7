import Testing

@testable import EarshotWorker

/// Header lines of libcurl, reduced to the final response.
@Suite struct ResponseHeadTests {
    private func head(_ lines: [String]) throws(ResponseHead.Fault) -> ResponseHead {
        var head = ResponseHead()
        for line in lines {
            let bytes = Array(line.utf8)
            let hadEnded = head.isComplete
            #expect(try head.append(bytes.span) == (head.isComplete && !hadEnded))
        }
        return head
    }

    @Test func `a block is complete with its empty line and not before`() throws {
        #expect(try !head(["HTTP/1.1 200 OK\r\n", "A: 1\r\n"]).isComplete)
        let whole = try head(["HTTP/1.1 200 OK\r\n", "A: 1\r\n", "b:2\r\n", "\r\n"])
        #expect(whole.isComplete)
        #expect(whole.status == 200)
        #expect(whole.fields == Array("A: 1\nb:2".utf8))
    }

    @Test(arguments: [
        ["HTTP/1.1 100 Continue\r\n", "X: 1\r\n", "\r\n"], ["HTTP/1.1 200 Connection established\r\n", "\r\n"],
    ])
    func `a block before the last one is dropped`(before: [String]) throws {
        let head = try head(before + ["HTTP/2 404 \r\n", "Y: 2\r\n", "\r\n"])
        #expect(head.status == 404)
        #expect(head.fields == Array("Y: 2".utf8))
        #expect(head.isComplete)
    }

    @Test func `an interim answer alone is none`() throws {
        #expect(try !head(["HTTP/1.1 103 Early Hints\r\n", "\r\n"]).isComplete)
    }

    @Test func `a name is known not to be there by its length`() throws {
        let long = String(repeating: "n", count: 70)
        let head = try head(["HTTP/1.1 103\r\n", "Abc: 1\r\n", "\r\n", "HTTP/1.1 200\r\n", "Abcd: 1\r\n", "\r\n"])
        #expect(head.mayHaveField(named: "abcd") && head.mayHaveField(named: "wxyz"))
        #expect(
            !head.mayHaveField(named: "abc") && !head.mayHaveField(named: "abcde") && !head.mayHaveField(named: long))
        let other = try self.head(["HTTP/1.1 200\r\n", "\(long): 1\r\n", " folded: 2\r\n", "\r\n"])
        #expect(other.mayHaveField(named: long) && other.mayHaveField(named: long + long))
        #expect(!other.mayHaveField(named: "folded"))
    }

    @Test func `what tells the length of the body is found apart`() throws {
        let head = try head([
            "HTTP/1.1 103\r\n", "Content-Length: 9\r\n", "\r\n", "HTTP/1.1 200\r\n", "A: 1\r\n",
            "Content-Length: 5, 5\r\n", "B: 2\r\n", " folded\r\n", "Content-Lengths: 7\r\n", "x-content-foot: 1\r\n",
            "transfer-ENCODING:\tchunked\t\r\n", "\r\n",
        ])
        #expect(head.framingFields == Array("Content-Length: 5, 5\ntransfer-ENCODING:\tchunked\t".utf8))
        #expect(try self.head(["HTTP/1.1 200\r\n", "A: 1\r\n", "\r\n"]).framingFields.isEmpty)
    }

    @Test(
        arguments: ["Transfer-Encoding", "content-length"],
        [
            [":\r\n", " chunked\r\n"], [": 5\r\n", "\t\r\n"], [": chunked\r\n", " , gzip\r\n"], [": \u{b}chunked\r\n"],
            [": chunked\u{c}\r\n"], [": 5\u{7f}\r\n"], [" : chunked\r\n"], ["\t: 5\r\n"], ["  : 5\r\n"],
        ])
    func `a field that tells the length of the body is refused in a form that could be read in two ways`(
        name: String, rest: [String]
    ) {
        let lines = [name + rest[0]] + rest.dropFirst()
        #expect(throws: ResponseHead.Fault.malformed) { try head(["HTTP/1.1 200\r\n", "A: 1\r\n"] + lines + ["\r\n"]) }
        #expect(throws: Never.self) { try head(["HTTP/1.1 200\r\n", "x-" + lines[0]] + rest.dropFirst() + ["\r\n"]) }
    }

    @Test(arguments: [
        ["Set-Cookie: a=\u{1}b\r\n"], ["set-cookie: a=b; path=/\u{7f}\r\n", " c\r\n"],
        ["Set-Cookie: a=b\r\n", " ; c\u{1f}\r\n"], ["Set-Cookie: a=b\r\n", " c\r\n", " d\u{8}\r\n", " e\r\n"],
    ])
    func `a cookie with a control character is ignored`(lines: [String]) throws {
        let others = ["X: 1\u{1}2\r\n", " 3\r\n"]
        let before = try head(["HTTP/1.1 200\r\n"] + others + lines + ["Set-Cookie: t=a\tb\r\n", "\r\n"])
        #expect(before.fields == Array("X: 1 2 3\nSet-Cookie: t=a\tb".utf8))
        let alone = try head(["HTTP/1.1 200\r\n"] + lines + ["A: 1\r\n", "\r\n"])
        #expect(alone.fields == Array("A: 1".utf8))
    }

    @Test func `a folded line continues no other field than its own`() throws {
        let head = try head(["HTTP/1.1 200\r\n", "A: 1\r\n", "nonsense\r\n", " 2\r\n", "B: 3\r\n", " 4\r\n", "\r\n"])
        #expect(head.fields == Array("A: 1\nB: 3 4".utf8))
    }

    @Test func `trailers are dropped`() throws {
        let head = try head(["HTTP/1.1 200\r\n", "A: 1\r\n", "\r\n", "Sum: 5\r\n", "\r\n"])
        #expect(head.fields == Array("A: 1".utf8))
        #expect(head.isComplete)
    }

    @Test func `folded lines are joined by one space`() throws {
        let head = try head(["HTTP/1.1 200 OK\r\n", "A: 1\r\n", "\t  2\n", " 3\r\n", "\r\n"])
        #expect(head.fields == Array("A: 1 2 3".utf8))
    }

    @Test func `a folded line that continues none is refused`() {
        #expect(throws: ResponseHead.Fault.malformed) { try head(["HTTP/1.1 200 OK\r\n", " lost\r\n"]) }
        #expect(throws: ResponseHead.Fault.malformed) {
            try head(["HTTP/1.1 103\r\n", "A: 1\r\n", "\r\n", "HTTP/1.1 200\r\n", "\tlost\r\n"])
        }
    }

    @Test func `lines without a name are dropped`() throws {
        let head = try head(["HTTP/1.1 200 OK\r\n", "nonsense\r\n", ": 1\r\n", "A: 1\r\n", "\r\n"])
        #expect(head.fields == Array("A: 1".utf8))
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\rX\r\n", "HTTP/1.1 200 \0\r\n", "HTTP/1.1\r\n", "HTTP/1.1 20\r\n", "HTTP/1.1 2000\r\n",
        "HTTP/1.1 099 X\r\n", "HTTP/1.1 abc\r\n", "A: 1\r\n", "\r\n", "",
    ])
    func `what is no status line is refused`(line: String) {
        #expect(throws: ResponseHead.Fault.malformed) { try head([line]) }
    }

    @Test(arguments: ["A: 1\r2\r\n", "A: \0\r\n", "A: 1\nB: 2\r\n", "A: 1\r\r\n"])
    func `a field with a NUL or a bare line end is refused`(line: String) {
        #expect(throws: ResponseHead.Fault.malformed) { try head(["HTTP/1.1 200 OK\r\n", line]) }
    }

    @Test func `the fields have a bound`() throws {
        let line = "A: " + String(repeating: "x", count: 1020) + "\r\n"
        let many = [String](repeating: line, count: 46)
        #expect(try head(["HTTP/1.1 200 OK\r\n"] + many + ["\r\n"]).isComplete)
        #expect(throws: ResponseHead.Fault.fieldsTooLong) { try head(["HTTP/1.1 200 OK\r\n"] + many + many) }
    }
}
