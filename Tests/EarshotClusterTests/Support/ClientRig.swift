import EarshotCluster
import EarshotCore
import EarshotLoop

/// Engine clients on one loop, as brokers have them.
final class ClientRig {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let loop: EventLoop
    private(set) var clients: [EngineClient] = []
    /// Events of each client since the last call of `forget`.
    private(set) var events: [[EngineEvent]] = []
    /// Time of the latest `joined` or answer of each client.
    private(set) var lastAnswer: [LoopTime] = []

    init() throws {
        loop = try EventLoop()
    }

    static func options(
        _ place: EngineOptions.EngineLocation, login: EngineOptions.Login? = nil, secret: [UInt8] = [1, 2, 3],
        timeout: Int = 20_000
    ) -> EngineOptions {
        var options = EngineOptions(
            location: place, cluster: "test", keys: ClusterKeys(secret: secret), publicKey: "key", description: "test")
        options.login = login
        options.timeoutMilliseconds = timeout
        return options
    }

    static func options(_ server: RedisServer, login: EngineOptions.Login? = nil, timeout: Int = 20_000)
        -> EngineOptions
    {
        options(.servers([.unixSocket(path: server.socket)]), login: login, timeout: timeout)
    }

    /// Starts a client. Returns its number.
    @discardableResult
    func add(_ options: EngineOptions) -> Int {
        let client = EngineClient(options, on: loop)
        clients.append(client)
        events.append([])
        lastAnswer.append(loop.now)
        client.start()
        return clients.count - 1
    }

    /// Starts a client and awaits its membership.
    @discardableResult
    func join(_ options: EngineOptions) throws -> Int {
        let number = add(options)
        try awaitEvent(number, "joined") { $0.isJoined }
        return number
    }

    func submit(_ number: Int, _ calls: EngineCall...) {
        clients[number].submit(calls)
    }

    func forget() {
        for number in events.indices { events[number] = [] }
    }

    /// Awaits an event, also one that has arrived since the last call of `forget`, and returns it.
    @discardableResult
    func awaitEvent(_ number: Int, _ name: String, _ isWanted: (EngineEvent) -> Bool) throws -> EngineEvent {
        try run(name) { events[number].contains(where: isWanted) }
        guard let event = events[number].first(where: isWanted) else { throw Failure(description: name) }
        return event
    }

    @discardableResult
    func awaitFault(_ number: Int) throws -> EngineFault {
        guard case .left(let fault) = try awaitEvent(number, "fault", { $0.isLeft })
        else { throw Failure(description: "no fault") }
        return fault
    }

    /// Runs the loop until a condition holds.
    func run(_ name: String, for limit: Duration = .seconds(60), until condition: () throws -> Bool) throws {
        var failure: (any Error)?
        let isDone = try loop.run(for: limit) {
            for number in clients.indices {
                clients[number].runPass()
                let new = clients[number].takeEvents()
                for event in new {
                    switch event {
                    case .joined, .flightsGranted, .wantsAnswered, .completionsAnswered: lastAnswer[number] = loop.now
                    default: break
                    }
                }
                events[number] += new
            }
            do { return try condition() } catch {
                failure = error
                return true
            }
        }
        if let failure { throw failure }
        guard isDone else { throw Failure(description: "no \(name) among \(events)") }
    }
}

extension EngineEvent {
    var isJoined: Bool { if case .joined = self { true } else { false } }
    var isLeft: Bool { if case .left = self { true } else { false } }
    var isGranted: Bool { if case .flightsGranted = self { true } else { false } }
    var isCooled: Bool { if case .cooled = self { true } else { false } }
}

/// Server of a test that is no Redis: answers each read with the same bytes, or relays to a real server and cuts the
/// connection after a number of bytes of the replies.
final class FaultyServer {
    enum Kind {
        case answers([UInt8])
        case relay(to: String, cutAfter: Int)
    }

    let address: EngineAddress
    private(set) var connectionCount = 0
    /// Bytes that may still be relayed; negative for any number.
    var rest: Int
    private let kind: Kind
    private let loop: EventLoop
    private let listener: Int32
    private var descriptors: [Int32] = []
    private var registrations: [EventLoop.Registration] = []

    init(_ kind: Kind, on loop: EventLoop) throws {
        self.kind = kind
        self.loop = loop
        if case .relay(_, let count) = kind { rest = count } else { rest = -1 }
        let host = TCPSocket.Address.ipv4([127, 0, 0, 1])
        let (listener, port) = try TCPSocket.listen(host, port: 0, backlog: 16)
        self.listener = listener
        address = .ipAddress(host, port: port)
        registrations.append(try loop.add(listener, .readable) { [unowned self] _ in accept() })
    }

    deinit {
        for registration in registrations { loop.remove(registration) }
        for descriptor in descriptors + [listener] { UnixSocket.close(descriptor) }
    }

    private func accept() {
        guard let client = try? UnixSocket.accept(listener) else { return }
        connectionCount += 1
        descriptors.append(client)
        switch kind {
        case .answers(let bytes):
            watch(client) { [unowned self] _ in
                if !bytes.isEmpty { send(bytes, to: client) }
            }
        case .relay(let path, _):
            guard let server = try? StreamConnection.connect(to: path) else { return }
            descriptors.append(server)
            watch(client) { [unowned self] bytes in send(bytes, to: server) }
            watch(server) { [unowned self] bytes in
                guard rest >= 0 else { return send(bytes, to: client) }
                send(Array(bytes.prefix(rest)), to: client)
                rest -= min(rest, bytes.count)
                if rest == 0 { UnixSocket.shutDown(client) }
            }
        }
    }

    private func send(_ bytes: [UInt8], to descriptor: Int32) {
        guard !bytes.isEmpty else { return }
        _ = unsafe bytes.withUnsafeBytes { unsafe UnixSocket.send(descriptor, $0) }
    }

    private func watch(_ descriptor: Int32, _ handler: @escaping ([UInt8]) -> Void) {
        var registration: EventLoop.Registration?
        registration = try? loop.add(descriptor, .readable) { [unowned self] _ in
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let transfer = unsafe bytes.withUnsafeMutableBytes { unsafe UnixSocket.receive(descriptor, into: $0) }
            switch transfer {
            case .bytesTransferred(let count): handler(Array(bytes[..<count]))
            case .wouldBlock: break
            case .connectionEnded: if let registration { loop.remove(registration) }
            }
        }
        if let registration { registrations.append(registration) }
    }
}
