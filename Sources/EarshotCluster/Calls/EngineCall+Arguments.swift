internal import EarshotCore
internal import EarshotWire
internal import RESP

/// Calls of the core, written as scripts of the engine with their arguments. `EngineBatch` and `EngineSession` send
/// them.
extension EngineCall {
    /// Script that carries it out.
    var script: EngineScript {
        switch self {
        case .want, .unwant, .take, .takeWanted, .done, .cool: .pass
        case .survey: .survey
        case .retire, .leave: .reap
        }
    }

    /// Its function in the script `pass`, and the arguments of that; nil for a call with a script of its own.
    var function: (name: String, arguments: Command)? {
        var arguments = Command()
        switch self {
        case .want(let wants):
            Self.append(wants, to: &arguments)
            return ("want", arguments)
        case .unwant(let keys):
            for key in keys { arguments.append(key.description) }
            return ("unwant", arguments)
        case .take(let slots, let isOwnOnly):
            arguments.append(String(min(max(slots, 0), EngineLimits.batch)))
            arguments.append(isOwnOnly ? "1" : "0")
            return ("take", arguments)
        case .takeWanted(let slots):
            arguments.append(String(min(max(slots, 0), EngineLimits.batch)))
            arguments.append("2")
            return ("take", arguments)
        case .done(let completions):
            for completion in completions { Self.append(completion, to: &arguments) }
            return ("done", arguments)
        case .cool(let requested):
            let refusal = requested.bounded
            arguments.append(refusal.origin.key.description)
            arguments.append(String(refusal.origin.limit))
            arguments.append(String(refusal.origin.spacingMilliseconds))
            arguments.append(String(refusal.requestedMilliseconds))
            arguments.append(String(EngineLimits.firstCoolDownMilliseconds))
            arguments.append(String(EngineLimits.longestCoolDownMilliseconds))
            return ("cool", arguments)
        case .survey, .retire, .leave: return nil
        }
    }

    private static func append(_ wants: [EngineWant], to command: inout Command) {
        var origins: [EngineOrigin] = []
        var numbers: [EngineOrigin: Int] = [:]
        for origin in wants.map(\.origin.bounded) where numbers[origin] == nil {
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
            let number = numbers[want.origin.bounded] ?? 0
            command.append(
                "\(want.key) \(number) \(lane) \(want.priority.rawValue) \(want.boundedAgeMilliseconds) \(token)")
            command.append(want.record)
        }
    }

    private static func append(_ completion: EngineCompletion, to command: inout Command) {
        let head = "\(completion.key) \(completion.token)"
        switch completion.outcome {
        case .result(let result):
            command.append("\(head) r \(completion.isAnswered ? 1 : 0)")
            command.append(result)
        case .released:
            command.append("\(head) c \(completion.isAnswered ? 1 : 0)")
            command.append("")
        case .kept(let result, let age):
            command.append("\(completion.key) \(EngineCompletion.bounded(ageMilliseconds: age)) k 0")
            command.append(result)
        }
    }

    /// The same work in calls within the bounds of `EngineLimits`. Empty for a call without flights.
    var parts: [EngineCall] {
        switch self {
        case .want(let wants): Self.split(wants) { $0.record.count }.map { .want($0) }
        case .unwant(let keys): Self.split(keys) { _ in 0 }.map { .unwant($0) }
        case .done(let completions): Self.split(completions) { $0.bytes }.map { .done($0) }
        case .take, .takeWanted, .cool, .survey, .retire, .leave: [self]
        }
    }

    /// Number of flights that it may concern.
    var flightCount: Int {
        switch self {
        case .want(let wants): wants.count
        case .unwant(let keys): keys.count
        case .take(let slots, _), .takeWanted(let slots): min(max(slots, 0), EngineLimits.batch)
        case .done(let completions): completions.count
        case .cool, .survey, .retire, .leave: 1
        }
    }

    /// Number of bytes of its records or results.
    var bytes: Int {
        switch self {
        case .want(let wants): wants.reduce(0) { $0 + $1.record.count }
        case .done(let completions): completions.reduce(0) { $0 + $1.bytes }
        case .unwant, .take, .takeWanted, .cool, .survey, .retire, .leave: 0
        }
    }

    private static func split<Item>(_ items: [Item], _ bytes: (Item) -> Int) -> [[Item]] {
        var parts: [[Item]] = []
        var part: [Item] = []
        var sum = 0
        for item in items {
            let count = bytes(item)
            if part.count == EngineLimits.batch || sum + count > EngineLimits.callBytes, !part.isEmpty {
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
        case .result(let result), .kept(let result, _): result.count
        case .released: 0
        }
    }
}
