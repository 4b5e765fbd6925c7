import Testing

@testable import EarshotWire

/// Heads of terminals whose body is read by READ.
struct PulledTerminalTests {
    private static func terminal(fields: String) -> Terminal {
        var response = Terminal.Response(url: "http://a.example/")
        response.file = "/spool/file: yours"
        response.isYours = true
        response.httpFields = Array(fields.utf8)
        return Terminal(
            handler: HandlerID("h")!, request: RequestID("1")!, sequence: 7,
            outcome: .result(status: 200, response))
    }

    @Test(arguments: ["", "file: /x\nyours: yes\npull: no"])
    func `a pulled terminal names no file`(fields: String) throws {
        guard case .terminal(let read) = try BrokerMessage(head: Self.terminal(fields: fields).pulled().encoded())
        else {
            Issue.record("it is no terminal")
            return
        }
        #expect(read.response?.isPulled == true && read.response?.file == nil && read.response?.isYours == false)
        #expect(read.response?.httpFields == Array(fields.utf8))
    }
}
