import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

/// The loop's record of a handler.
@Suite struct OpenHandlerTests {
    @Test func `a handler forgets its requests in any order`() throws {
        let commands = try Mailbox<BusCommand>()
        let state = HandlerState(1, handler, isNamed: false)
        let open = OpenHandler(state, OpenName())
        let requests = (0..<4).map { open.add(Request(key("\($0)"), state, commands), .function { _ in }) }
        for (index, left) in [(1, ["0", "3", "2"]), (2, ["0", "3"]), (0, ["3"]), (3, [])] {
            open.remove(requests[index])
            #expect(open.requests.map(\.request.key.request.description) == left)
        }
    }
}
