import EarshotWire
import Testing

@testable import EarshotClient

/// The buffer between the loop and the reader of a watch.
@Suite(.timeLimit(.minutes(10))) struct WatchStateTests {
    private let ended = WatchedRequest(handler: "page", request: "1", result: .failure(.busClosed), claim: nil)

    @Test func `what comes while a reader makes room does not leave the connection waiting`() async throws {
        let state = WatchState(pattern("page/"))
        var resumed = 0
        let read = { try await state.next(isolation: nil) { resumed += 1 } }
        for _ in 1..<WatchState.maximumUnreadResults { #expect(!state.addResult(ended)) }
        #expect(state.addResult(ended))
        // The loop adds results beyond the bound while the reader reads.
        for _ in 0..<4 { _ = try await read() }
        #expect(state.addResult(ended))
        while state.unreadCount > 0 { _ = try await read() }
        #expect(resumed == 1)
        #expect(!state.addResult(ended))
    }

    @Test func `what came before the end is read before it`() async throws {
        let state = WatchState(pattern("page/"))
        #expect(!state.addResult(ended))
        state.fail(BusError.busClosed)
        state.fail(CancellationError())
        #expect(try await state.next(isolation: nil) {}.handler == "page")
        await #expect(throws: BusError.self) { try await state.next(isolation: nil) {} }
    }
}
