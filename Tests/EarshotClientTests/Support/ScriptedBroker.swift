import EarshotLoop
import EarshotWire
import Glibc
import ZeroMQ

/// Broker in the test's own loop, which records messages and answers by script.
final class ScriptedBroker {
    private let context: Context
    private let socket: Socket
    private let loop: EventLoop
    private var registration: EventLoop.Registration?
    private var hook: EventLoop.HookID?
    /// Messages, without the ages of requests, which depend on the machine.
    private(set) var sent: [ClientMessage] = []
    /// Number of the last message that had one.
    private(set) var number: UInt64 = 0
    /// Messages with numbers that were not answered.
    private var open: [NumberedMessage] = []
    /// Identity of the client that sent last.
    private(set) var peer: [UInt8] = []
    /// Authentication of clients; nil to admit all.
    private let doorkeeper: Doorkeeper?
    /// Endpoint with the port that the system chose.
    let endpoint: String

    /// - Parameters:
    ///   - endpoint: endpoint of ipc, or of tcp for a server of CURVE.
    ///   - admits: whether a server of CURVE admits its clients.
    init(
        _ endpoint: String, _ loop: EventLoop, admits: Bool = true,
        answer: @escaping (ScriptedBroker, ClientMessage) throws -> Void
    ) throws {
        self.loop = loop
        context = try Context.make()
        doorkeeper = admits ? nil : try Doorkeeper(context, loop)
        socket = try context.socket(.router)
        if endpoint.hasPrefix("tcp://") { try CurveKeys.serve(socket) }
        try socket.bind(endpoint)
        self.endpoint = try socket.lastEndpoint()
        registration = try loop.add(socket.descriptor, .readable) { _ in }
        hook = loop.addHook { [unowned self] in
            do {
                var parts = Multipart(capacity: 3)
                while try socket.receive(into: &parts) {
                    peer = parts.bytes(0)
                    let numbered = try NumberedMessage(head: parts.bytes(1))
                    let message = numbered.message
                    if let number = numbered.number {
                        self.number = number
                        open.append(numbered)
                    } else if case .hello = message {
                        open = []
                    }
                    sent.append(message.withoutAge)
                    try answer(self, message)
                }
                return try socket.readiness().contains(.readable) ? .noSleep : .untilEvent
            } catch {
                preconditionFailure("the scripted broker failed: \(error)")
            }
        }
    }

    /// Sends a head of any form.
    func send(head: String) throws { try send(head: Array(head.utf8), body: nil) }

    /// Sends a message, as the answer to the first message of its kind if it is one.
    func send(_ message: BrokerMessage, body: [UInt8]? = nil) throws {
        var to: UInt64?
        if message.isReply, let index = open.firstIndex(where: { isAnswer(message, to: $0.message) }) {
            to = open.remove(at: index).number
        }
        try send(head: NumberedAnswer(message, answeredNumber: to).encoded(), body: body)
    }

    /// Refuses an open message.
    func refuse(_ message: ClientMessage, _ reply: ErrorReply) throws {
        guard let index = open.firstIndex(where: { isSame($0.message, message) }) else {
            preconditionFailure("\(message) is not open")
        }
        try send(
            head: NumberedAnswer(.error(reply), answeredNumber: open.remove(at: index).number).encoded(), body: nil)
    }

    private func send(head: [UInt8], body: [UInt8]?) throws {
        _ = try socket.send(peer, more: true)
        _ = try socket.send(head, more: body != nil)
        if let body { _ = try socket.send(body) }
    }

    /// Closes all connections.
    func die() {
        if let registration { loop.remove(registration) }
        if let hook { loop.removeHook(hook) }
    }
}

/// Unique ipc endpoint. Its file is removed with it.
final class Endpoint {
    let path: String
    var name: String { "ipc://\(path)" }

    init() {
        let folder = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? P_tmpdir
        path = "\(folder)/earshot-\(getpid())-\(UInt32.random(in: 0 ... .max))"
    }

    deinit { unsafe unlink(path) }
}
