internal import EarshotCore
internal import EarshotWire
internal import RESP

/// Calls of the core, written as scripts of the engine with their arguments. `EngineBatch` and `EngineSession` send
/// them.
extension EngineCall {
    /// Script that carries it out.
    var script: EngineScript {
        switch self {
        case .wantFlights, .withdrawWants, .takeFlights, .takeWantedFlights, .reportCompletions, .reportRefusal: .pass
        case .survey: .survey
        case .retireMembership, .leaveCluster: .reap
        }
    }

    /// Its function in the script `pass`, and the arguments of that; nil for a call with a script of its own.
    var passFunction: (name: String, arguments: Command)? {
        var arguments = Command()
        switch self {
        case .wantFlights(let wants):
            Self.appendWants(wants, to: &arguments)
            return ("want", arguments)
        case .withdrawWants(let keys):
            for key in keys { arguments.append(key.description) }
            return ("unwant", arguments)
        case .takeFlights(let slots, let isOwnOnly):
            arguments.append(String(min(max(slots, 0), EngineLimits.maximumFlightsPerCall)))
            arguments.append(isOwnOnly ? "1" : "0")
            return ("take", arguments)
        case .takeWantedFlights(let slots):
            arguments.append(String(min(max(slots, 0), EngineLimits.maximumFlightsPerCall)))
            arguments.append("2")
            return ("take", arguments)
        case .reportCompletions(let completions):
            for completion in completions { Self.appendCompletion(completion, to: &arguments) }
            return ("done", arguments)
        case .reportRefusal(let requested):
            let refusal = requested.clampedToLimits
            arguments.append(refusal.origin.key.description)
            arguments.append(String(refusal.origin.limit))
            arguments.append(String(refusal.origin.spacingMilliseconds))
            arguments.append(String(refusal.requestedPauseMilliseconds))
            arguments.append(String(EngineLimits.initialCoolDownMilliseconds))
            arguments.append(String(EngineLimits.maximumCoolDownMilliseconds))
            return ("cool", arguments)
        case .survey, .retireMembership, .leaveCluster: return nil
        }
    }

    private static func appendWants(_ wants: [EngineWant], to command: inout Command) {
        var origins: [EngineOrigin] = []
        var numbers: [EngineOrigin: Int] = [:]
        for origin in wants.map(\.origin.clampedToLimits) where numbers[origin] == nil {
            origins.append(origin)
            numbers[origin] = origins.count
        }
        command.append(String(origins.count))
        for origin in origins { command.append("\(origin.key) \(origin.limit) \(origin.spacingMilliseconds)") }
        for want in wants {
            let token = want.token?.description ?? "0"
            let lane =
                switch want.lane {
                case .shared: want.isHosted ? "h" : "s"
                case .pinned: "p"
                case .credentialed: "c"
                }
            let number = numbers[want.origin.clampedToLimits] ?? 0
            command.append(
                "\(want.key) \(number) \(lane) \(want.priority.rawValue) \(want.clampedAgeMilliseconds) \(token)")
            command.append(want.record)
        }
    }

    private static func appendCompletion(_ completion: EngineCompletion, to command: inout Command) {
        let head = "\(completion.key) \(completion.token)"
        switch completion.outcome {
        case .result(let result):
            command.append("\(head) r \(completion.isAnswered ? 1 : 0)")
            command.append(result)
        case .released:
            command.append("\(head) c \(completion.isAnswered ? 1 : 0)")
            command.append("")
        case .lateResult(let result, let age):
            command.append("\(completion.key) \(EngineCompletion.clampedAge(milliseconds: age)) k 0")
            command.append(result)
        }
    }

    /// The same work in calls within the bounds of `EngineLimits`. Empty for a call without flights.
    var boundedCalls: [EngineCall] {
        switch self {
        case .wantFlights(let wants): Self.splitIntoBoundedParts(wants) { $0.record.count }.map { .wantFlights($0) }
        case .withdrawWants(let keys): Self.splitIntoBoundedParts(keys) { _ in 0 }.map { .withdrawWants($0) }
        case .reportCompletions(let completions):
            Self.splitIntoBoundedParts(completions) { $0.bytes }.map { .reportCompletions($0) }
        case .takeFlights, .takeWantedFlights, .reportRefusal, .survey, .retireMembership, .leaveCluster: [self]
        }
    }

    /// Number of flights that it may concern.
    var flightCount: Int {
        switch self {
        case .wantFlights(let wants): wants.count
        case .withdrawWants(let keys): keys.count
        case .takeFlights(let slots, _), .takeWantedFlights(let slots):
            min(max(slots, 0), EngineLimits.maximumFlightsPerCall)
        case .reportCompletions(let completions): completions.count
        case .reportRefusal, .survey, .retireMembership, .leaveCluster: 1
        }
    }

    /// Number of bytes of its records or results.
    var recordBytes: Int {
        switch self {
        case .wantFlights(let wants): wants.reduce(0) { $0 + $1.record.count }
        case .reportCompletions(let completions): completions.reduce(0) { $0 + $1.bytes }
        case .withdrawWants, .takeFlights, .takeWantedFlights, .reportRefusal, .survey, .retireMembership,
            .leaveCluster:
            0
        }
    }

    private static func splitIntoBoundedParts<Item>(_ items: [Item], itemBytes bytes: (Item) -> Int) -> [[Item]] {
        var parts: [[Item]] = []
        var part: [Item] = []
        var sum = 0
        for item in items {
            let count = bytes(item)
            let isFull = part.count == EngineLimits.maximumFlightsPerCall || sum + count > EngineLimits.maximumCallBytes
            if isFull, !part.isEmpty {
                parts.append(part)
                part = []
                sum = 0
            }
            part.append(item)
            sum += count
        }
        if !part.isEmpty { parts.append(part) }
        return parts
    }
}

extension EngineCompletion {
    /// Number of bytes of its result.
    fileprivate var bytes: Int {
        switch outcome {
        case .result(let result), .lateResult(let result, _): result.count
        case .released: 0
        }
    }
}
