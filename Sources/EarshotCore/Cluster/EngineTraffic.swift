internal import DequeModule

/// Calls that a node has yet to make to the engine, and calls without an answer. Each membership begins without any.
struct EngineTraffic {
    /// Want that was sent and has no answer yet.
    struct Question {
        /// Serial of its claim.
        let claim: UInt64
        let key: ClusterKey
        let token: FencingToken?
    }

    /// Claims that are asserted again, in the order of their times.
    var assertions = Deque<(flight: LocalFlight, due: Tick)>()
    /// Claims that the next calls assert.
    var fresh: [LocalFlight] = []
    /// Wants without an answer, in order. A later claim of a key must not take the answer to an earlier one.
    var questions = Deque<Question>()
    var unwants: [ClusterKey] = []
    var refusals: [EngineRefusal] = []
    var completions: [EngineCompletion] = []
    /// Aborts that arrived before the grants of their attempts.
    var earlyAborts: [ClusterKey: FencingToken] = [:]
    var taking = TakeState()
    /// Latest report about members and backlog.
    var survey: EngineSurvey?
    var nextSurvey: Tick?
}
