internal import EarshotCore
internal import RESP

/// Calls, one after the other, that one script of the engine carries out. A script has a cost of its own, so the calls
/// of one pass of the loop share one.
struct EngineBatch: Equatable {
    /// Maximum number of flights: full calls that end, want and start flights.
    static let maximumFlights = 3 * EngineLimits.maximumFlightsPerCall

    private(set) var calls: [EngineCall]
    private var flightCount = 0
    private var byteCount = 0

    private init(_ call: EngineCall) {
        calls = []
        append(call)
    }

    /// Puts calls into batches, in order.
    static func batches(of calls: [EngineCall]) -> [EngineBatch] {
        var batches: [EngineBatch] = []
        for call in calls.flatMap(\.boundedCalls) {
            if batches.last?.hasRoom(for: call) == true {
                batches[batches.count - 1].append(call)
            } else {
                batches.append(EngineBatch(call))
            }
        }
        return batches
    }

    private func hasRoom(for call: EngineCall) -> Bool {
        script == .pass && call.script == .pass && flightCount + call.flightCount <= Self.maximumFlights
            && byteCount + call.recordBytes <= EngineLimits.maximumCallBytes
    }

    private mutating func append(_ call: EngineCall) {
        calls.append(call)
        flightCount += call.flightCount
        byteCount += call.recordBytes
    }

    /// Script of its calls. One without a function in `pass` is alone in its batch.
    var script: EngineScript { calls[0].script }

    /// Appends the arguments of its script to a command.
    func appendArguments(to command: inout Command, node: NodeID) {
        switch calls[0] {
        case .wantFlights, .withdrawWants, .takeFlights, .takeWantedFlights, .reportCompletions, .reportRefusal,
            .survey, .leaveCluster:
            command.append(node.description)
        case .retireMembership(let former): command.append(former.description)
        }
        if script == .reap { command.append(String(EngineLimits.maximumFlightsPerCall)) }
        for (name, arguments) in calls.compactMap(\.passFunction) {
            command.append(name)
            command.append(String(arguments.wordCount))
            command.append(arguments)
        }
    }

    /// Events for the reply of its script, which is not an error; nil for a reply of another form.
    func events(forReply reply: Reply) -> [EngineEvent]? {
        guard script == .pass else {
            if calls[0].needsNoAnswer { return [] }
            return calls[0].event(forReply: reply).map { [$0] }
        }
        guard let replies = reply.elements, replies.count == calls.count else { return nil }
        var events: [EngineEvent] = []
        for (call, reply) in zip(calls, replies) where !call.needsNoAnswer {
            guard let event = call.event(forReply: reply) else { return nil }
            events.append(event)
        }
        return events
    }
}
