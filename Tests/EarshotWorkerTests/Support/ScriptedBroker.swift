import EarshotLoop
import EarshotWire
import ZeroMQ

/// Broker on the test's own loop, which sends the test's messages.
final class ScriptedBroker {
    /// A message of the worker.
    struct Said {
        let message: WorkerMessage
        let body: [UInt8]?
    }

    let instance: BrokerInstance
    /// Messages of the worker, in order.
    private(set) var said: [Said] = []
    private let socket: Socket
    private let loop: EventLoop
    private var peer: [UInt8] = []
    private var parts = Multipart(capacity: 3)
    private var hook: EventLoop.HookID?
    private let registration: EventLoop.Registration

    /// - Parameter limits: Reply to READY; nil to leave the reply to the test.
    init(_ loop: EventLoop, context: borrowing Context, endpoint: String, limits: WorkerLimits?, instance: UInt64)
        throws
    {
        self.loop = loop
        self.instance = BrokerInstance(rawValue: instance)
        socket = try context.socket(.router)
        try socket.bind(endpoint)
        registration = try loop.add(socket.descriptor, .readable) { _ in }
        hook = loop.addHook { [weak self] in self?.settle(limits) ?? .untilEvent }
    }

    /// Stops reading and replying, without GOODBYE.
    func end() {
        loop.remove(registration)
        if let hook { loop.removeHook(hook) }
        hook = nil
    }

    func tell(_ message: PoolMessage) throws { try tell(head: message.encoded()) }

    func tell(head: [UInt8], more: [[UInt8]] = []) throws {
        _ = try socket.send(peer, more: true)
        _ = try socket.send(head, more: !more.isEmpty)
        for (index, frame) in more.enumerated() { _ = try socket.send(frame, more: index + 1 < more.count) }
    }

    // MARK: Received messages

    var readies: [Ready] {
        said.compactMap { said in
            guard case .ready(let ready) = said.message else { return nil }
            return ready
        }
    }

    func completion(_ attempt: AttemptID) -> (completion: Completion, body: [UInt8]?)? {
        for said in said {
            if case .done(let completion) = said.message, completion.attempt == attempt {
                return (completion, said.body)
            }
        }
        return nil
    }

    func failure(_ attempt: AttemptID) -> String? {
        for said in said {
            if case .failed(attempt, let code, _, _, _, _, _, _) = said.message { return code }
        }
        return nil
    }

    /// Unwanted bytes of a failed attempt; nil before its FAILED.
    func unwantedBytes(_ attempt: AttemptID) -> Int? {
        for said in said {
            if case .failed(attempt, _, _, _, let unwanted, _, _, _) = said.message { return unwanted }
        }
        return nil
    }

    /// Partial body of a failed attempt; nil without one.
    func part(_ attempt: AttemptID) -> BodyPart? {
        for said in said {
            if case .failed(attempt, _, _, _, _, let part, _, _) = said.message { return part }
        }
        return nil
    }

    func hasEnded(_ attempt: AttemptID) -> Bool { completion(attempt) != nil || failure(attempt) != nil }

    func count(of message: WorkerMessage) -> Int { said.count { $0.message == message } }

    private func settle(_ limits: WorkerLimits?) -> EventLoop.Rest {
        while (try? socket.receive(into: &parts)) == true {
            guard parts.count >= 2, let message = try? WorkerMessage(head: parts.bytes(1)) else { continue }
            peer = parts.bytes(0)
            said.append(Said(message: message, body: parts.count == 3 ? parts.bytes(2) : nil))
            if case .ready = message, let limits { try? tell(.limits(limits)) }
        }
        return (try? socket.readiness().contains(.readable)) == true ? .none : .untilEvent
    }
}
