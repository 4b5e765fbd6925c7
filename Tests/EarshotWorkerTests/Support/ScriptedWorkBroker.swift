import EarshotLoop
import EarshotWire
import ZeroMQ

/// Broker on the test's own loop, which sends the test's messages.
final class ScriptedWorkBroker {
    /// A message of the worker.
    struct SentMessage {
        let message: WorkerMessage
        let body: [UInt8]?
    }

    let instance: BrokerInstance
    /// Messages of the worker, in order.
    private(set) var sent: [SentMessage] = []
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
        hook = loop.addHook { [weak self] in self?.runPass(limits) ?? .untilEvent }
    }

    /// Stops reading and replying, without GOODBYE.
    func end() {
        loop.remove(registration)
        if let hook { loop.removeHook(hook) }
        hook = nil
    }

    func send(_ message: PoolMessage) throws { try send(head: message.encoded()) }

    func send(head: [UInt8], more: [[UInt8]] = []) throws {
        _ = try socket.send(peer, more: true)
        _ = try socket.send(head, more: !more.isEmpty)
        for (index, frame) in more.enumerated() { _ = try socket.send(frame, more: index + 1 < more.count) }
    }

    // MARK: Received messages

    var readies: [Ready] {
        sent.compactMap { sent in
            guard case .ready(let ready) = sent.message else { return nil }
            return ready
        }
    }

    func completion(_ attempt: AttemptID) -> (completion: Completion, body: [UInt8]?)? {
        for sent in sent {
            if case .completed(let completion) = sent.message, completion.attempt == attempt {
                return (completion, sent.body)
            }
        }
        return nil
    }

    func failure(_ attempt: AttemptID) -> String? {
        for sent in sent {
            if case .failed(attempt, let code, _, _, _, _, _, _) = sent.message { return code }
        }
        return nil
    }

    /// Unwanted bytes of a failed attempt; nil before its FAILED.
    func unwantedBytes(_ attempt: AttemptID) -> Int? {
        for sent in sent {
            if case .failed(attempt, _, _, _, let unwanted, _, _, _) = sent.message { return unwanted }
        }
        return nil
    }

    /// Partial body of a failed attempt; nil without one.
    func part(_ attempt: AttemptID) -> BodyPart? {
        for sent in sent {
            if case .failed(attempt, _, _, _, _, let part, _, _) = sent.message { return part }
        }
        return nil
    }

    func hasEnded(_ attempt: AttemptID) -> Bool { completion(attempt) != nil || failure(attempt) != nil }

    func count(of message: WorkerMessage) -> Int { sent.count { $0.message == message } }

    private func runPass(_ limits: WorkerLimits?) -> EventLoop.SleepLimit {
        while (try? socket.receive(into: &parts)) == true {
            guard parts.count >= 2, let message = try? WorkerMessage(head: parts.bytes(1)) else { continue }
            peer = parts.bytes(0)
            sent.append(SentMessage(message: message, body: parts.count == 3 ? parts.bytes(2) : nil))
            if case .ready = message, let limits { try? send(.limits(limits)) }
        }
        return (try? socket.readiness().contains(.readable)) == true ? .noSleep : .untilEvent
    }
}
