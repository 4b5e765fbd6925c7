import EarshotLoop
import EarshotWire
import Foundation
import Logging
import Testing
import ZMTP

@testable import EarshotBroker

/// A broker in a temporary folder, with clients and workers that the test plays, all on one loop.
final class BrokerRig {
    /// A connection to the broker. It reads whenever the loop runs.
    class Peer {
        fileprivate let stream: MessageStream
        fileprivate var received: [Message] = []
        var isOpen: Bool { stream.isOpen }
        var isEnded: Bool { stream.isEnded }
        var isReading: Bool {
            get { stream.isReading }
            set { stream.isReading = newValue }
        }

        fileprivate init(_ path: String, _ loop: EventLoop) throws {
            stream = try MessageStream(
                try UnixSocket.connect(to: path), as: .dealer, frameBytes: 4 << 20, maximumMessages: 10_000, loop: loop
            ) {}
        }

        func send(head: [UInt8], _ body: [UInt8]? = nil) {
            _ = stream.send(Message(head: head, body: body))
            stream.flush()
        }

        fileprivate func read() {
            while let message = stream.next() { received.append(message) }
            stream.flush()
        }
    }

    /// A client after its HELLO.
    final class Client: Peer {
        var messages: [BrokerMessage] { received.compactMap { try? BrokerMessage(head: $0.head) } }

        /// The terminals so far, each with its inline body.
        var terminals: [(terminal: Terminal, body: [UInt8]?)] {
            received.compactMap { message in
                guard case .terminal(let terminal)? = try? BrokerMessage(head: message.head) else { return nil }
                return (terminal, message.body)
            }
        }

        /// Number of DATA messages so far.
        var parts: Int {
            messages.count { if case .bodyData = $0 { true } else { false } }
        }

        /// `RESULT` statuses and `FAILED` codes of the terminals so far.
        var ends: [String] {
            terminals.map { terminal, _ in
                switch terminal.outcome {
                case .result(let status, _): "\(status)"
                case .failed(let failure): failure.code
                }
            }
        }

        func send(_ message: ClientMessage) { send(head: message.encoded(), message.body) }

        /// Sends messages in one write.
        func send(together messages: [ClientMessage]) {
            for message in messages { _ = stream.send(Message(head: message.encoded())) }
            stream.flush()
        }

        /// Sends a FETCH under the handler `app/list`, without retries.
        func fetch(_ request: String, _ url: String, _ change: (inout Fetch) -> Void = { _ in }) throws {
            let handler = try #require(HandlerID("app/list"))
            var fetch = Fetch(handler: handler, request: try #require(RequestID(request)), url: url)
            fetch.options.retries = 0
            change(&fetch)
            send(.fetch(fetch))
        }

        /// Acknowledges all terminals so far.
        func acknowledge() { send(.acknowledge(terminals.last?.terminal.sequence ?? 0)) }
    }

    /// A worker after its READY, which answers each PING.
    final class FakeWorker: Peer {
        var messages: [PoolMessage] { received.compactMap { try? PoolMessage(head: $0.head) } }

        /// The jobs so far, each with the body of its request.
        var jobs: [(job: Job, body: [UInt8]?)] {
            received.compactMap { message in
                guard case .job(let job)? = try? PoolMessage(head: message.head) else { return nil }
                return (job, message.body)
            }
        }

        func send(_ message: WorkerMessage, _ body: [UInt8]? = nil) { send(head: message.encoded(), body) }

        fileprivate override func read() {
            let known = received.count
            super.read()
            for message in messages[min(known, messages.count)...] where message == .ping { send(.pong) }
        }
    }

    /// A folder for brokers, one after the other.
    final class Folder {
        let path = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"

        init() throws {
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }
    }

    var folder: String { place.path }
    let broker: BrokerProcess
    private var peers: [Peer] = []
    private var hook: EventLoop.HookID?
    private let place: Folder

    /// - Parameters:
    ///   - place: That of an earlier broker; nil for a new one.
    ///   - change: Changes the options.
    init(in place: Folder? = nil, _ change: (inout BrokerOptions) -> Void = { _ in }) throws {
        let place = try place ?? Folder()
        self.place = place
        var options = BrokerOptions(runtimeFolder: place.path + "/run", spoolFolder: place.path + "/spool")
        change(&options)
        broker = try BrokerProcess(
            options: options, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, signals: nil)
        broker.start()
        hook = broker.loop.addHook { [unowned self] in pass() }
    }

    deinit { if let hook { broker.loop.removeHook(hook) } }

    func client(_ change: (inout Hello) -> Void = { _ in }) throws -> Client {
        let client = try Client(folder + "/run/bus", broker.loop)
        peers.append(client)
        try #require(try reaches { client.stream.isOpen })
        var hello = Hello()
        change(&hello)
        client.send(.hello(hello))
        try #require(try reaches { client.messages.count == 1 })
        return client
    }

    /// A worker that fetches `http` and `https`, or schemes of its own.
    func worker(slots: Int = 4, schemes: [String] = ["http", "https"]) throws -> FakeWorker {
        let worker = try unready()
        try #require(try reaches { worker.stream.isOpen })
        var ready = Ready(slots: slots)
        ready.schemes = schemes
        worker.send(.ready(ready))
        try #require(try reaches { !worker.messages.isEmpty })
        return worker
    }

    /// A worker before its READY.
    func unready() throws -> FakeWorker {
        let worker = try FakeWorker(folder + "/run/work", broker.loop)
        peers.append(worker)
        return worker
    }

    /// Ends a peer's connection.
    func drop(_ peer: Peer) {
        UnixSocket.shutDown(peer.stream.descriptor)
        peers.removeAll { $0 === peer }
    }

    /// Runs the loop until the condition holds, for a minute at most.
    func reaches(_ condition: () -> Bool) throws -> Bool { try broker.loop.run(for: .seconds(60), until: condition) }

    /// Runs the loop until the broker stops it, for a minute at most.
    ///
    /// - Returns: whether it did.
    func ends() throws -> Bool {
        let start = LoopTime.readClock()
        try broker.loop.run(for: .seconds(60)) { false }
        return broker.loop.now.since(start) < .seconds(60)
    }

    // MARK: The spool

    /// The names of the files of bodies, in order.
    var spool: [String] {
        let paths = (try? FileManager.default.subpathsOfDirectory(atPath: folder + "/spool")) ?? []
        return paths.map { URL(filePath: $0).lastPathComponent }
            .filter { $0 != "broker.lock" && SpoolName.workerPID(ofFolder: $0) == nil }.sorted()
    }

    /// Writes a file of the spool, in its worker's folder if it is unfinished.
    func write(_ text: String, _ name: String) throws {
        try Data(text.utf8).write(to: URL(filePath: "\(folder)/spool/\(SpoolName.relativePath(of: name))"))
    }

    /// The name under which a worker of this process writes an attempt's body.
    func part(of job: Job) -> String {
        SpoolName.partFile(of: job.attempt, pid: ProcessInfo.processInfo.processIdentifier)
    }

    private func pass() -> EventLoop.SleepLimit {
        for peer in peers { peer.read() }
        return peers.contains { $0.stream.mayHavePendingMessage } ? .noSleep : .untilEvent
    }
}
