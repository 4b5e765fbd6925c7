import Testing

@testable import EarshotCore

/// Times at which a node asks the engine for flights.
@Suite struct TakeStateTests {
    private let now = MonotonicTime(nanoseconds: 0)

    private func next(_ state: inout FlightTakeState, _ freeSlots: Int, wakesOthers: Bool = false) -> Int? {
        state.slotsToRequest(freeSlots: freeSlots, wakesOthers: wakesOthers, now: now)
    }

    @Test func `other nodes are woken for flights of a pass with an open question`() {
        var state = FlightTakeState()
        state.isRequestDue = true
        #expect(next(&state, 2) == 2)
        // A pass with wants while the question has no answer.
        state.isRequestDue = true
        #expect(next(&state, 0, wakesOthers: true) == nil)
        _ = state.takeAnswered(2, opens: nil, now: now, pause: 2_000)
        #expect(next(&state, 0) == 0)
        _ = state.takeAnswered(0, opens: nil, now: now, pause: 2_000)
        #expect(next(&state, 0) == nil)
    }

    @Test func `a question with slots wakes others as well`() {
        var state = FlightTakeState()
        state.isRequestDue = true
        #expect(next(&state, 1, wakesOthers: true) == 1)
        _ = state.takeAnswered(1, opens: nil, now: now, pause: 2_000)
        #expect(next(&state, 0) == nil)
        #expect(next(&state, 3) == 3)
    }
}
