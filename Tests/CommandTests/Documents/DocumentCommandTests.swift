import ArgumentParser
import Testing

@testable import earshot

/// Command lines of the documents, through the parser of the program. None is executed.
@Suite struct DocumentCommandTests {
    @Test func `each command line of the documents is valid`() throws {
        // Each is parsed once.
        var known: Set<String> = []
        for document in try DocumentText.all() {
            for piece in document.pieces {
                for command in DocumentCommand.all(in: piece) {
                    let line = ([command.program] + command.arguments).joined(separator: " ")
                    guard known.insert(line).inserted, let fault = command.fault else { continue }
                    Issue.record("\(document.path):\(piece.line): \(line): \(fault)")
                }
            }
        }
        // So many at least, or the test has lost them.
        #expect(known.count > 120)
    }

    @Test func `each example of the help texts is valid`() throws {
        for text in Self.discussions(of: Earshot.self) {
            // Examples are indented, with two spaces.
            let lines = text.split(separator: "\n").filter { $0.hasPrefix("  ") }.joined(separator: "\n")
            for command in DocumentCommand.all(in: .init(line: 1, text: lines, form: .shell)) {
                #expect(command.fault == nil, "\(command.arguments)")
            }
        }
    }

    private static func discussions(of command: any ParsableCommand.Type) -> [String] {
        [command.configuration.discussion] + command.configuration.subcommands.flatMap(discussions)
    }

    private func faults(_ text: String, _ form: DocumentText.Form = .shell) -> [String?] {
        DocumentCommand.all(in: .init(line: 1, text: text, form: form)).map(\.fault)
    }

    @Test(arguments: [
        "earshot submit mirror --list /etc/urls", "earshot get -i list.txt --ouptut a", "true && earshot nonsense",
        "a=$(earshot status --jsn)", "sudo -u b earshot serve --workers many", "earshot status # all\nearshot drop",
        "cat <<'EOF' | earshot get --inptu -\nhttp://a/\nEOF", "earshot-web --port 80",
    ])
    func `a wrong command line of a block is found`(text: String) {
        #expect(faults(text).compactMap { $0 }.count == 1)
    }

    @Test(arguments: ["earshot get --ouptut a", "earshot status extra", "earshot serve --workers many"])
    func `a wrong command line in a sentence is found`(text: String) {
        #expect(faults(text, .span).compactMap { $0 }.count == 1)
    }

    @Test func `a sentence may name a command without its arguments and a block may not`() {
        #expect(faults("earshot cancel", .span) == [nil])
        #expect(faults("earshot cancel").compactMap { $0 }.count == 1)
        #expect(faults("runuser -u earshot -- earshot status") == [nil])
        #expect(faults("apt install earshot; ls /run/earshot; systemctl restart earshot") == [])
    }

    @Test func `a document has blocks of the shell and spans`() {
        let text = """
            Run `earshot status`.

            ```sh
            earshot serve &
            ```

            ```python
            earshot nonsense
            ```

               ```cron
               */10 * * * * me earshot drain
               ```
            """
        let pieces = DocumentText(path: "a.md", text: text).pieces
        #expect(pieces.map(\.text) == ["earshot status", "earshot serve &", "earshot drain"])
        #expect(pieces.map(\.line) == [1, 4, 12])
    }

    @Test(arguments: [
        ("a 'b c' \"d \\\"e\" f\\ g", [["a", "b c", "d \"e", "f g"]]), ("a \\\n  b # c\nd", [["a", "b"], ["d"]]),
        ("a | b && c; d & e", [["a"], ["b"], ["c"], ["d"], ["e"]]), ("a >b 2>&1 <c d", [["a", "d"]]),
        ("a \"$(b 'c')/$d\" x#y", [["b", "c"], ["a", "$()/$d", "x#y"]]), ("a <<E\nb\nE\nc", [["a"], ["c"]]),
        ("a '' <(b c)", [["a", ""], ["b", "c"]]),
    ])
    func `the shell's words are read`(text: String, commands: [[String]]) {
        #expect(ShellText(text).commands == commands)
    }
}
