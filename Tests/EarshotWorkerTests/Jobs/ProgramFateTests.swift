import EarshotHTTP
import EarshotLoop
import Testing

@testable import EarshotWorker

/// State machine of a job that a program runs.
struct ProgramFateTests {
    @Test func `a program that ends with 0 has done its job`() {
        var fate = ProgramFate()
        #expect(fate.ended(.code(0), words: "not an error") == nil)
        #expect(fate.phase == .over)
    }

    @Test(arguments: [
        (ChildProcess.Exit.code(1), FailureCode.workerFailed), (.code(3), .malformedURL), (.code(6), .unknownHost),
        (.code(7), .connectFailed), (.code(18), .truncated), (.code(28), .timeout), (.code(56), .reset),
        (.code(60), .tls), (.code(63), .tooLarge), (.code(22), .workerFailed), (.code(255), .workerFailed),
        (.signal(9), .workerFailed),
    ])
    func `another end has a code, and the program's last words`(exit: ChildProcess.Exit, code: FailureCode) {
        var fate = ProgramFate()
        #expect(fate.ended(exit, words: "no such picture") == Refusal(code, "no such picture"))
        var silent = ProgramFate()
        #expect(silent.ended(exit, words: "") == Refusal(code, "The program ended with \(exit)."))
    }

    @Test func `a job that is stopped fails by the first reason, however the program ends`() {
        var fate = ProgramFate()
        #expect(fate.isWanted)
        #expect(fate.stop(Refusal(.tooLarge)) == .terminate)
        #expect(!fate.isWanted)
        #expect(fate.stop(Refusal(.cancelled)) == nil)
        #expect(fate.ended(.code(0), words: "") == Refusal(.tooLarge))
    }

    @Test func `a program that does not end in time is killed, once`() {
        var fate = ProgramFate()
        #expect(fate.graceOver() == nil)
        #expect(fate.stop(Refusal(.cancelled)) == .terminate)
        #expect(fate.graceOver() == .kill)
        #expect(fate.graceOver() == nil)
        #expect(fate.ended(.signal(9), words: "") == Refusal(.cancelled))
        #expect(fate.graceOver() == nil)
        #expect(fate.stop(Refusal(.cancelled)) == nil)
    }

    @Test(arguments: [
        ("", ""), ("one", "one"), ("one\n", "one"), ("one\ntwo", "two"), ("one\n\n \t\n", "one"), ("one\n  ", "one"),
        ("\u{1b}[31mred\n", "?[31mred"),
    ])
    func `the last line that says something is kept, fit for a message`(written: String, kept: String) {
        var whole = LastLine()
        whole.append(Array(written.utf8).span)
        #expect(whole.text == kept)
        // The result is independent of how the text is split.
        var pieces = LastLine()
        for byte in written.utf8 { pieces.append([byte].span) }
        #expect(pieces.text == kept)
    }

    @Test func `of a line without an end a bounded part is kept`() {
        var line = LastLine()
        for _ in 0..<100 { line.append([UInt8](repeating: UInt8(ascii: "x"), count: 1_000).span) }
        #expect(line.text == String(repeating: "x", count: Limits.sentenceBytes))
    }
}
