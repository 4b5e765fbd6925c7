import EarshotCore
import EarshotLoop
import EarshotWire
import RESP

@testable import EarshotCluster

/// Connection of a test to a server, which waits for each reply.
final class ServerConnection {
    struct Failure: Error, Equatable {
        let text: String
    }

    private let loop: EventLoop
    private let stream: EngineStream
    private var replies: [Reply] = []
    private var isOpen = false

    init(_ address: EngineAddress) throws {
        loop = try EventLoop()
        stream = EngineStream(loop)
        stream.open(address)
        try awaitThat { isOpen }
    }

    /// Sends a command and returns its reply.
    @discardableResult
    func send(_ command: Command) throws -> Reply {
        stream.append(command)
        stream.flush()
        return try next()
    }

    @discardableResult
    func send(_ words: String...) throws -> Reply {
        var command = Command()
        for word in words { command.append(word) }
        return try send(command)
    }

    /// Sends commands at once and returns their replies.
    func send(all commands: [Command]) throws -> [Reply] {
        for command in commands { stream.append(command) }
        stream.flush()
        return try commands.map { _ in try next() }
    }

    /// The next reply or message.
    func next() throws -> Reply {
        try awaitThat { !replies.isEmpty }
        return replies.removeFirst()
    }

    private func awaitThat(_ condition: () -> Bool) throws {
        var failure: EngineFault?
        let isDone = try loop.run(for: .seconds(60)) {
            for event in stream.takeEvents() {
                switch event {
                case .opened: isOpen = true
                case .reply(let reply): replies.append(reply)
                case .closed(let fault): failure = fault
                }
            }
            return condition() || failure != nil
        }
        if condition() { return }
        throw Failure(text: failure.map { "\($0)" } ?? (isDone ? "?" : "no reply"))
    }
}

/// One node as the scripts see it: makes calls, waits for their answers, and reads its channel.
final class ScriptEngine {
    let node: NodeID
    let connection: ServerConnection
    private let listener: ServerConnection
    private let names: EngineNames
    private var digests: [EngineScript: String] = [:]

    /// - Parameter lease: Milliseconds of the lease; nil for a node that has not joined.
    init(_ server: RedisServer, node: UInt64, lease: Int? = 60_000, cluster: String = "test") throws {
        self.node = NodeID(node)
        names = EngineNames(cluster: cluster)
        connection = try ServerConnection(.unixSocket(path: server.socket))
        listener = try ServerConnection(.unixSocket(path: server.socket))
        try listener.send("SUBSCRIBE", names.channel(of: self.node))
        if let lease { _ = try renew(isJoin: true, lease: lease) }
    }

    /// Makes a call, which must succeed.
    func call(_ call: EngineCall) throws -> EngineEvent? { try calls([call]).first }

    /// Makes calls in one batch, which must succeed.
    func calls(_ calls: [EngineCall]) throws -> [EngineEvent] {
        let batches = EngineBatch.batches(of: calls)
        let replies = try batches.map { try connection.send(command($0)) }
        for case .error(let text) in replies { throw ServerConnection.Failure(text: text) }
        return zip(batches, replies).flatMap { batch, reply in batch.events(forReply: reply) ?? [] }
    }

    func command(_ batch: EngineBatch) throws -> Command {
        var command = try script(batch.script)
        batch.appendArguments(to: &command, node: node)
        return command
    }

    func run(_ script: EngineScript, _ arguments: [String]) throws -> Reply {
        var command = try self.script(script)
        for argument in arguments { command.append(argument) }
        return try connection.send(command)
    }

    /// Numbers of members and of expired ones.
    ///
    /// - Parameter results: Milliseconds of a table of results, the same if there are many, and their number.
    func renew(
        isJoin: Bool = false, lease: Int = 60_000, version: String = "1 x", results: [Int] = [120_000, 10_000, 50_000]
    ) throws -> [Int] {
        Array(try heartbeat(isJoin: isJoin, lease: lease, version: version, results: results).prefix(2))
    }

    /// Numbers of calls of the node and of messages to it.
    func counts() throws -> [Int] { Array(try heartbeat().suffix(2)) }

    private func heartbeat(
        isJoin: Bool = false, lease: Int = 60_000, version: String = "1 x", results: [Int] = [120_000, 10_000, 50_000]
    ) throws -> [Int] {
        let reply = try run(
            .renew, ["\(node)", String(lease), isJoin ? "1" : "0", version, "test"] + results.map(String.init))
        if case .error(let text) = reply { throw ServerConnection.Failure(text: text) }
        return reply.elements?.compactMap(\.number) ?? []
    }

    func reap(_ leaving: NodeID? = nil, most: Int = 64) throws -> [Int] {
        try run(.reap, [leaving?.description ?? "", String(most)]).elements?.compactMap(\.number) ?? []
    }

    // Shorter forms for tests.

    func want(_ wants: [EngineWant]) throws -> [WantAnswer.State] {
        guard case .wantsAnswered(let answers) = try call(.wantFlights(wants)) else { return [] }
        return answers.map(\.state)
    }

    func take(_ slots: Int = 64) throws -> [EngineGrant] { try takeAndWait(slots).grants }

    func takeAndWait(_ slots: Int = 64) throws -> (grants: [EngineGrant], wait: Int?) {
        guard case .flightsGranted(let grants, let wait) = try call(.takeFlights(slots: slots)) else {
            return ([], nil)
        }
        return (grants, wait)
    }

    func done(_ completions: [EngineCompletion]) throws -> [Bool] {
        guard case .completionsAnswered(let answers) = try call(.reportCompletions(completions)) else { return [] }
        return answers.map(\.isCurrent)
    }

    /// Events of the node's channel up to now.
    func notices() throws -> [EngineEvent] {
        // A message to itself marks the end, since a channel keeps its order.
        try connection.send("PUBLISH", names.channel(of: node), "end")
        var events: [EngineEvent] = []
        while true {
            guard case .bulkString(let message) = try listener.next().elements?[2] else { return events }
            if message == Array("end".utf8) { return events }
            guard let more = EngineNotification.events(message) else {
                throw ServerConnection.Failure(text: String(decoding: message, as: UTF8.self))
            }
            events += more
        }
    }

    /// Names of all keys of the cluster without the prefix. Tables whose only member is the empty name are left out, and so
    /// are the counts of calls and messages.
    /// Flights, origins and results are `f:KEY`, `o:ORIGIN`, and `d:KEY` or `e:KEY`.
    func keys() throws -> Set<String> {
        var keys: Set<String> = []
        for name in try texts("KEYS", "\(names.prefix)*") {
            let key = String(name.dropFirst(names.prefix.count))
            switch key {
            case "counts": break
            case "f", "o", "d", "e":
                keys.formUnion(try texts("HKEYS", name).filter { !$0.isEmpty }.map { "\(key):\($0)" })
            case "ready:", "paused": if try texts("ZRANGE", name, "0", "-1") != [""] { keys.insert(key) }
            case _ where key.hasPrefix("n:"): if try texts("SMEMBERS", name) != [""] { keys.insert(key) }
            default: keys.insert(key)
            }
        }
        return keys
    }

    /// Names of all keys of the server that do not expire.
    func lastingKeys() throws -> [String] {
        try texts("KEYS", "*").filter { try connection.send("PTTL", $0).number == -1 }
    }

    /// Text of a flight or origin in its table.
    func field(_ table: String, _ name: String) throws -> String? {
        try connection.send("HGET", "\(names.prefix)\(table)", name).text
    }

    private func texts(_ words: String...) throws -> [String] {
        var command = Command()
        for word in words { command.append(word) }
        return try connection.send(command).elements?.compactMap(\.text) ?? []
    }

    private func script(_ script: EngineScript) throws -> Command {
        if digests[script] == nil {
            var load = Command("SCRIPT", "LOAD")
            load.append(script.scriptText)
            digests[script] = try connection.send(load).text
        }
        return Command("EVALSHA", digests[script] ?? "", "2", names.prefix, names.version)
    }
}

extension EngineWant {
    /// A want of flight `number` at origin `origin`.
    static func make(
        _ number: UInt64, origin: UInt64 = 1, limit: Int = 100, spacing: Int = 0, lane: Lane = .shared,
        _ priority: PriorityClass = .normal, age: Int = 0, token: FencingToken? = nil
    ) -> EngineWant {
        EngineWant(
            key: .flight(number), origin: .make(origin, limit: limit, spacing: spacing), lane: lane, priority: priority,
            ageMilliseconds: age, token: token, record: Array("record \(number)".utf8))
    }
}

extension EngineOrigin {
    static func make(_ number: UInt64 = 1, limit: Int = 100, spacing: Int = 0) -> EngineOrigin {
        EngineOrigin(key: ClusterKey(high: 0xf, low: number), limit: limit, spacingMilliseconds: spacing)
    }
}

extension ClusterKey {
    static func flight(_ number: UInt64) -> ClusterKey { ClusterKey(high: 0xa, low: number) }
}

extension EngineGrant {
    func completed(_ result: String = "result", isAnswered: Bool = true) -> EngineCompletion {
        EngineCompletion(key: key, token: token, outcome: .result(Array(result.utf8)), isAnswered: isAnswered)
    }

    func released() -> EngineCompletion {
        EngineCompletion(key: key, token: token, outcome: .released, isAnswered: false)
    }
}
