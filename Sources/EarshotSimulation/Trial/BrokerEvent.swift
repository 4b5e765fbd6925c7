public import EarshotCore
public import EarshotWire

/// Input of a core: a call of one of its methods as a value.
public enum BrokerEvent: Sendable {
    case clientConnected(ClientID)
    case clientSent(ClientID, ClientMessage, number: UInt64? = nil)
    case clientSentMalformed(ClientID, WireError)
    case clientLost(ClientID)
    case deliveryRefused(ClientID, UInt64)
    case clientWritable(ClientID)
    case progressRefused(ClientID, HandlerID, RequestID)
    /// A waiting body could not be written to the spool.
    case spillFailed(BodyID)
    case workerConnected(WorkerID, process: Int32)
    /// A process ended that may be a worker of an earlier broker.
    case processEnded(Int32)
    case workerSent(WorkerID, WorkerMessage, BodyID?)
    case workerSentMalformed(WorkerID, WireError)
    case workerDisconnected(WorkerID, isProcessAlive: Bool)
    case workerLost(WorkerID)
    /// The worker was killed from outside.
    case workerKilled(WorkerID)
    /// The worker's socket accepted no message.
    case workerBlocked(WorkerID)
    /// Passed just before the end of an attempt.
    case partKept(WorkerID, AttemptID, bytes: Int)
    /// The JOB of an attempt names a part that outlived its flight.
    case partFound(WorkerID, AttemptID, PartDescription, bytes: Int)
    case timePassed
    /// End of a pass, with the clients whose input is not completely read.
    case dispatch(unread: [ClientID])
    case limitsChanged(CoreLimits)
    case drain
    /// The broker was killed and the next one started. It assigns work when each of these processes is
    /// ready or has ended, and has late ones killed from the given time on.
    case brokerReplaced(CoreLimits, awaiting: Set<Int32>, until: MonotonicTime)
}

extension BrokerEvent: CustomStringConvertible {
    public var description: String {
        switch self {
        case .clientConnected(let id): "client \(id.rawValue) connects"
        case .clientSent(let id, let message, let number):
            "client \(id.rawValue): \(Self.text(NumberedMessage(message, number: number).encoded()))"
        case .clientSentMalformed(let id, let error): "client \(id.rawValue): nonsense, \(error.code.rawValue)"
        case .clientLost(let id): "client \(id.rawValue) is lost"
        case .deliveryRefused(let id, let sequence):
            "the socket refuses terminal \(sequence) to client \(id.rawValue)"
        case .clientWritable(let id): "the socket to client \(id.rawValue) is writable"
        case .progressRefused(let id, let handler, let request):
            "the socket refuses progress of \(handler) \(request) to client \(id.rawValue)"
        case .spillFailed(let id): "body \(id.rawValue), which is to wait, cannot be written"
        case .workerConnected(let id, let process): "worker \(id.rawValue) connects from process \(process)"
        case .processEnded(let process): "process \(process) has ended"
        case .workerSent(let id, let message, let body):
            "worker \(id.rawValue): \(Self.text(message.encoded()))" + (body.map { ", body \($0.rawValue)" } ?? "")
        case .workerSentMalformed(let id, let error): "worker \(id.rawValue): nonsense, \(error.code.rawValue)"
        case .workerDisconnected(let id, let isAlive):
            "worker \(id.rawValue) is disconnected, its process is \(isAlive ? "alive" : "gone")"
        case .workerLost(let id): "worker \(id.rawValue) is lost"
        case .workerKilled(let id): "worker \(id.rawValue) was killed from outside"
        case .workerBlocked(let id): "the socket refuses a message to worker \(id.rawValue)"
        case .partKept(let id, let attempt, let bytes):
            "\(bytes) bytes of \(attempt) are taken back from worker \(id.rawValue)"
        case .partFound(let id, let attempt, _, let bytes):
            "\(attempt) of worker \(id.rawValue) resumes \(bytes) bytes"
        case .timePassed: "time passes"
        case .dispatch(let unread):
            unread.isEmpty ? "dispatch" : "dispatch, with unread messages of clients \(unread.map(\.rawValue))"
        case .limitsChanged(let limits):
            "limits change: \(Self.text(limits.originRules)), \(limits.maximumOpenRequestsPerHandler) requests a handler, "
                + "\(limits.maximumOpenRequestsPerClient) a client, \(limits.maximumOpenRequests) in all, \(limits.maximumDueTerminalsPerClient) terminals due"
        case .drain: "drain"
        case .brokerReplaced(_, let processes, _): "another broker begins, and awaits \(processes.count) processes"
        }
    }

    private static func text(_ rules: OriginRules) -> String {
        let rest = rules.rules.map { pattern, terms in
            let limit = terms.maximumTransfers.map { " \($0)" } ?? ""
            let spacing = terms.spacingMilliseconds.map { " \($0) ms apart" } ?? ""
            return ", \(pattern)\(limit)\(spacing)"
        }
        return "\(rules.defaultMaximumTransfers) transfers an origin, \(rules.defaultSpacingMilliseconds) ms apart"
            + rest.sorted().joined()
    }

    /// Returns a head on one line.
    private static func text(_ head: [UInt8]) -> String {
        String(decoding: head, as: UTF8.self).split(separator: "\n").joined(separator: " | ")
    }
}

/// Event with its time.
public struct HistoryEntry: Sendable {
    public var now: MonotonicTime
    public var event: BrokerEvent
}

extension BrokerEvent {
    /// Client whose connection brings it; nil for other events.
    var sender: ClientID? {
        switch self {
        case .clientSent(let id, _, _), .clientSentMalformed(let id, _), .clientLost(let id): id
        default: nil
        }
    }

    /// Client concerned; nil for other events.
    var client: ClientID? {
        switch self {
        case .clientConnected(let id), .clientSent(let id, _, _), .clientSentMalformed(let id, _), .clientLost(let id),
            .deliveryRefused(let id, _), .clientWritable(let id),
            .progressRefused(let id, _, _):
            id
        case .spillFailed, .workerConnected, .workerSent, .workerSentMalformed, .workerDisconnected,
            .workerLost, .workerKilled, .workerBlocked, .processEnded,
            .partKept, .partFound, .timePassed, .dispatch, .limitsChanged, .drain,
            .brokerReplaced:
            nil
        }
    }
}
