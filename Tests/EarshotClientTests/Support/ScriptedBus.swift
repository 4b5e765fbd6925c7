import EarshotLoop
import EarshotWire
import Glibc
import ZeroMQ

@testable import EarshotClient

/// Unique runtime folder, removed with this object.
final class Home: Sendable {
    let folder: RuntimeFolder

    init() throws {
        folder = try RuntimeFolder(named: Endpoint().path)
    }

    deinit { PrivateFolder.remove(folder.path) }
}

/// Scripted broker in its own runtime folder and thread, for asynchronous tests. It answers HELLO, removals,
/// cancellations and queries; the test sends all other messages.
final class ScriptedBus: Sendable {
    typealias Script = @Sendable (ScriptedBroker) throws -> Void

    let home: Home
    /// Messages of all clients.
    let sent = Observed<[ClientMessage]>([])
    private let scripts: Mailbox<Script>
    private let isDying = Observed(false)
    private let isDead = Observed(false)
    private let lastSequence = Observed<UInt64>(0)

    /// - Parameters:
    ///   - home: runtime folder of an earlier broker; nil for a new one.
    ///   - answers: whether it answers the first FETCH without the test.
    ///   - isPulling: whether its WELCOME imposes pulled bodies.
    init(in home: Home? = nil, instance: UInt64 = 1, answers: Bool = false, isPulling: Bool = false) throws {
        self.home = try home ?? Home()
        let folder = self.home.folder
        try folder.prepare()
        scripts = try Mailbox()
        let lock = try LockFile.acquire(folder.brokerLock)
        let (scripts, sent, isDying, isDead) = (scripts, sent, isDying, isDead)
        try BackgroundThread.run {
            do {
                try Self.serve(folder, instance, answers, isPulling, scripts, sent, isDying)
            } catch {
                preconditionFailure("the scripted bus failed: \(error)")
            }
            withExtendedLifetime(lock) {}
            isDead.change { $0 = true }
        }
    }

    private static func serve(
        _ folder: RuntimeFolder, _ instance: UInt64, _ answers: Bool, _ isPulling: Bool, _ scripts: Mailbox<Script>,
        _ sent: Observed<[ClientMessage]>, _ isDying: Observed<Bool>
    ) throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(folder.busEndpoint, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(instance, isPulling: isPulling))
            case .removeHandlers(let pattern): try broker.send(.handlersRemoved(pattern, count: 0))
            case .removeRequest(let handler, let request):
                try broker.send(.requestRemoved(handler, request, wasOpen: true))
            case .query(let query, _): try broker.send(.queryAnswer(query), body: Array("{}".utf8))
            case .fetch(let fetch) where answers:
                let outcome = Terminal.Outcome.result(status: 200, Terminal.Response(url: fetch.url))
                let terminal = Terminal(
                    handler: fetch.handler, request: fetch.request, sequence: 1, outcome: outcome)
                try broker.send(.terminal(terminal))
            default: break
            }
            sent.change { $0.append(message) }
        }
        let registration = try loop.add(scripts.descriptor, .readable) { _ in
            for script in scripts.takeAll() {
                do { try script(broker) } catch { preconditionFailure("a script failed: \(error)") }
            }
        }
        _ = try loop.run { isDying.versionedValue.value }
        loop.remove(registration)
        broker.die()
    }

    var folder: RuntimeFolder { home.folder }

    deinit {
        isDying.change { $0 = true }
        scripts.put { _ in }
    }

    /// Connects a bus to this broker.
    func connect(timeout: Duration? = .seconds(300)) async throws -> Bus {
        try await Bus.connect(to: .running(in: folder.path), application: "test", timeout: timeout)
    }

    /// Closes all connections, like a killed broker, and waits for the end of its thread.
    func die() async {
        isDying.change { $0 = true }
        scripts.put { _ in }
        while true {
            let (isOver, version) = isDead.versionedValue
            if isOver { return }
            await isDead.changed(since: version)
        }
    }

    /// Sends a message to the client that sent last.
    func send(_ message: BrokerMessage, body: [UInt8]? = nil) {
        scripts.put { try $0.send(message, body: body) }
    }

    /// Refuses an open message.
    func refuse(_ message: ClientMessage, _ reply: ErrorReply) {
        scripts.put { try $0.refuse(message, reply) }
    }

    /// Ends a request with status 200.
    func answer(
        _ fetch: Fetch, _ body: [UInt8] = [], file: String? = nil, length: Int? = nil, generation: String? = nil
    ) {
        var response = Terminal.Response(url: fetch.url)
        response.bodyByteCount = length ?? body.count
        response.bodyFilePath = file
        response.generation = generation.flatMap { Generation($0) }
        response.httpFields = Array("content-type: text/plain\nx-a: 1\nX-A: 2".utf8)
        end(fetch, .result(status: 200, response), body)
    }

    /// Ends a request with an outcome.
    func end(_ fetch: Fetch, _ outcome: Terminal.Outcome, _ body: [UInt8] = []) {
        let sequence = lastSequence.change { number in
            number += 1
            return number
        }
        let terminal = Terminal(
            handler: fetch.handler, request: fetch.request, sequence: sequence, outcome: outcome)
        send(.terminal(terminal), body: body.isEmpty ? nil : body)
    }

    /// Waits until `find` returns a value for the messages so far, and returns it.
    func awaitMessage<Found: Sendable>(_ find: (ClientMessage) -> Found?) async -> Found {
        while true {
            let (messages, version) = sent.versionedValue
            if let found = messages.lazy.compactMap(find).first { return found }
            await change(since: version)
        }
    }

    /// Waits for the `number`th FETCH, counted from 1.
    func fetch(_ number: Int = 1) async -> Fetch {
        while true {
            let version = sent.versionedValue.version
            if fetches.count >= number { return fetches[number - 1] }
            await change(since: version)
        }
    }

    /// Waits for the next message. Ends the test process at the test's time limit, because waits of a cancelled task
    /// return immediately.
    private func change(since version: UInt64) async {
        await sent.changed(since: version)
        precondition(!Task.isCancelled, "what is waited for was not said, but \(sent.versionedValue.value.suffix(10))")
    }

    /// Waits for the `number`th READ, counted from 1.
    func read(_ number: Int) async -> BodyRead {
        while true {
            let (messages, version) = sent.versionedValue
            let reads = messages.compactMap { if case .readBody(let read) = $0 { read } else { nil } }
            if reads.count >= number { return reads[number - 1] }
            await change(since: version)
        }
    }

    /// All FETCHes so far.
    var fetches: [Fetch] {
        sent.versionedValue.value.compactMap { if case .fetch(let fetch) = $0 { fetch } else { nil } }
    }

    /// Waits until a client has sent a message.
    func awaitMessage(_ message: ClientMessage) async { _ = await awaitMessage { $0 == message ? true : nil } }

    /// Creates a file in the spool.
    func file(_ name: String, _ bytes: [UInt8]) -> String {
        let path = "\(folder.path)/\(name)"
        append(bytes, to: path)
        return path
    }

    func append(_ bytes: [UInt8], to path: String) {
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        let count = unsafe write(descriptor, bytes, bytes.count)
        precondition(count == bytes.count, "the spool's file cannot be written")
        close(descriptor)
    }
}
