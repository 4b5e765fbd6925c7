import EarshotWire
import Testing

/// The length of a DONE: its bound, and its relation to the second frame.
struct CompletionTests {
    private static let attempt = AttemptID("00000000000000ff.1.2")

    private func refusal(of fields: String, bodyBytes: Int?) -> WireError? {
        let body = bodyBytes.map { [UInt8](repeating: 0, count: $0) }
        do throws(WireError) {
            _ = try WorkerMessage(head: Array("DONE 00000000000000ff.1.2 200\n\(fields)".utf8), body: body)
            return nil
        } catch {
            return error
        }
    }

    @Test(
        arguments: [
            ("", nil), ("", 0), ("length: 0\n", nil), ("length: 3\n", 3), ("length: 0\ncut: yes\n", nil),
            ("length: 7\nfile: a.part\n", nil), ("length: 7\nfile: a.part\n", 0),
            ("length: 1125899906842624\nfile: a.part\n", nil),
        ] as [(String, Int?)])
    func `a DONE describes its second frame or its file`(fields: String, bodyBytes: Int?) {
        #expect(refusal(of: fields, bodyBytes: bodyBytes) == nil)
    }

    @Test(
        arguments: [
            ("", 1), ("length: 3\n", nil), ("length: 3\n", 0), ("length: 3\n", 2), ("length: 3\n", 4),
            ("length: 9223372036854775807\n", 3), ("length: 3\ncut: yes\n", nil),
            ("length: 7\nfile: a.part\n", 7), ("length: 1125899906842625\nfile: a.part\n", nil),
            ("length: 9223372036854775807\nfile: a.part\n", nil),
        ] as [(String, Int?)])
    func `a DONE with another length is refused, and names its attempt`(fields: String, bodyBytes: Int?) {
        let error = refusal(of: fields, bodyBytes: bodyBytes)
        #expect(error?.code == .badMessage)
        #expect(error?.attempt == Self.attempt && error?.attempt != nil)
    }

    @Test func `only a DONE describes the second frame`() throws {
        #expect(try WorkerMessage(head: Array("PONG".utf8), body: [1]) == .pong)
    }
}
