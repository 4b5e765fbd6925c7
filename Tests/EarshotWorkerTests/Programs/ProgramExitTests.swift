import EarshotHTTP
import EarshotLoop
import Testing

@testable import EarshotWorker

/// Exit codes and last words of programs.
struct ProgramExitTests {
    @Test func `a program that ends with 0 has done its job`() {
        #expect(Refusal(.code(0), lastErrorLine: "not an error") == nil)
    }

    @Test(arguments: [
        (ChildProcess.Exit.code(1), FailureCode.workerFailed), (.code(3), .malformedURL), (.code(6), .unknownHost),
        (.code(7), .connectFailed), (.code(18), .truncated), (.code(28), .timeout), (.code(56), .connectionReset),
        (.code(60), .tls), (.code(63), .tooLarge), (.code(22), .workerFailed), (.code(255), .workerFailed),
        (.signal(9), .workerFailed),
    ])
    func `another end has a code, and the program's last words`(exit: ChildProcess.Exit, code: FailureCode) {
        #expect(Refusal(exit, lastErrorLine: "no such picture") == Refusal(code, "no such picture"))
        #expect(Refusal(exit, lastErrorLine: "") == Refusal(code, "The program ended with \(exit)."))
    }

    @Test(arguments: [
        ("", ""), ("one", "one"), ("one\n", "one"), ("one\ntwo", "two"), ("one\n\n \t\n", "one"), ("one\n  ", "one"),
        ("\u{1b}[31mred\n", "?[31mred"),
    ])
    func `the last line that says something is kept, fit for a message`(written: String, kept: String) {
        var whole = LastLine()
        whole.append(Array(written.utf8).span)
        #expect(whole.sanitizedText == kept)
        // The result is independent of how the text is split.
        var pieces = LastLine()
        for byte in written.utf8 { pieces.append([byte].span) }
        #expect(pieces.sanitizedText == kept)
    }

    @Test func `of a line without an end a bounded part is kept`() {
        var line = LastLine()
        for _ in 0..<100 { line.append([UInt8](repeating: UInt8(ascii: "x"), count: 1_000).span) }
        #expect(line.sanitizedText == String(repeating: "x", count: Limits.sentenceBytes))
    }
}
