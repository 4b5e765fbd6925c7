import Testing

@testable import EarshotWire

/// Heads of terminals whose body is read by READ.
struct PulledTerminalTests {
    private static func terminal(fields: String) -> Terminal {
        var response = Terminal.Response(url: "http://a.example/")
        response.bodyFilePath = "/spool/file: x"
        response.httpFields = Array(fields.utf8)
        return Terminal(
            handler: HandlerID("h")!, request: RequestID("1")!, sequence: 7,
            outcome: .result(status: 200, response))
    }

    @Test(arguments: ["", "file: /x\npull: no"])
    func `a pulled terminal names no file`(fields: String) throws {
        guard
            case .terminal(let read) = try BrokerMessage(head: Self.terminal(fields: fields).withPulledBody().encoded())
        else {
            Issue.record("it is no terminal")
            return
        }
        #expect(read.response?.isPulled == true && read.response?.bodyFilePath == nil)
        #expect(read.response?.httpFields == Array(fields.utf8))
    }

    @Test func `a head names no file whose bytes are in the message`() throws {
        var terminal = Self.terminal(fields: "")
        guard case .result(let status, var response) = terminal.outcome else { return }
        response.isInline = true
        terminal.outcome = .result(status: status, response)
        #expect(!terminal.hasBodyFile && terminal.encoded() == terminal.withoutFile().encoded())
        guard case .terminal(let read) = try BrokerMessage(head: terminal.encoded()) else {
            Issue.record("it is no terminal")
            return
        }
        #expect(read == terminal.withoutFile() && read.response?.bodyFilePath == nil)
    }
}
