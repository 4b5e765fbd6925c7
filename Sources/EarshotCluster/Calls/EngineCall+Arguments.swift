internal import EarshotCore
internal import EarshotWire
internal import Hiredis

extension EngineCall {
    var script: EngineScript {
        switch self {
        case .want: .want
        case .unwant: .unwant
        case .take: .take
        case .done: .done
        case .cool: .cool
        case .survey: .survey
        case .retire, .leave: .reap
        }
    }

    /// Appends the arguments of its script.
    func append(to command: inout Command, node: NodeID) {
        switch self {
        case .want(let wants): Self.append(wants, to: &command, node)
        case .unwant(let keys):
            command.append(node.description)
            for key in keys { command.append(key.description) }
        case .take(let slots, let isOwnOnly):
            command.append(node.description)
            command.append(String(min(max(slots, 0), EngineLimits.batch)))
            command.append(isOwnOnly ? "1" : "0")
        case .done(let completions):
            command.append(node.description)
            command.append(String(EngineLimits.resultMilliseconds))
            for completion in completions { Self.append(completion, to: &command) }
        case .cool(let asked):
            let refusal = asked.bounded
            command.append(node.description)
            command.append(refusal.origin.key.description)
            command.append(String(refusal.origin.limit))
            command.append(String(refusal.origin.spacingMilliseconds))
            command.append(String(refusal.askedMilliseconds))
            command.append(String(EngineLimits.firstCoolDownMilliseconds))
            command.append(String(EngineLimits.longestCoolDownMilliseconds))
        case .survey: command.append(node.description)
        case .retire(let former):
            command.append(former.description)
            command.append(String(EngineLimits.batch))
        case .leave:
            command.append(node.description)
            command.append(String(EngineLimits.batch))
        }
    }

    private static func append(_ wants: [EngineWant], to command: inout Command, _ node: NodeID) {
        var origins: [EngineOrigin] = []
        var numbers: [EngineOrigin: Int] = [:]
        for origin in wants.map(\.origin.bounded) where numbers[origin] == nil {
            origins.append(origin)
            numbers[origin] = origins.count
        }
        command.append(node.description)
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
        }
    }

    /// The same work in calls within the bounds of `EngineLimits`. Empty for a call without flights.
    var parts: [EngineCall] {
        switch self {
        case .want(let wants): Self.split(wants) { $0.record.count }.map { .want($0) }
        case .unwant(let keys): Self.split(keys) { _ in 0 }.map { .unwant($0) }
        case .done(let completions):
            Self.split(completions) { completion in
                if case .result(let result) = completion.outcome { result.count } else { 0 }
            }.map { .done($0) }
        case .take, .cool, .survey, .retire, .leave: [self]
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
