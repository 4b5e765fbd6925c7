internal import EarshotCore
internal import RESP

/// Connections of a node to the engine. `EngineSession` decides when each is opened, and `EngineClient` opens it.
enum EngineLink: Int, CaseIterable, Sendable {
    /// Scripts.
    case calls
    /// Messages of the node's channel.
    case notices
    /// A sentinel: the primary's address, then its changes.
    case sentinel
}

/// Work for the shell of an `EngineSession`.
enum EngineAction: Equatable {
    /// Closes the link's connection, if it has one, and opens another.
    case open(EngineLink, EngineAddress)
    case close(EngineLink)
    case send(EngineLink, Command)
    case report(EngineEvent)
}

/// Commands of one connection that wait for their replies. A server replies in order.
struct PendingReplies<Kind> {
    private var waiting: [(kind: Kind, deadline: Tick)] = []
    private var firstIndex = 0
    /// Deadline of the command of the latest reply.
    private var lastDeadline: Tick?

    /// Time by which the next reply must arrive; nil without commands.
    var deadline: Tick? { firstIndex < waiting.count ? waiting[firstIndex].deadline : nil }

    /// Microseconds between the command of the latest reply and now.
    func latency(now: Tick, patienceMilliseconds: Int) -> Int {
        guard let sent = lastDeadline?.advanced(byMilliseconds: -patienceMilliseconds) else { return 0 }
        return Int(max(0, now.nanoseconds - sent.nanoseconds) / 1_000)
    }

    mutating func append(_ kind: Kind, until deadline: Tick) { waiting.append((kind, deadline)) }

    /// Removes and returns the command of the next reply; nil for a reply without a command.
    mutating func takeNext() -> Kind? {
        guard firstIndex < waiting.count else { return nil }
        defer {
            firstIndex += 1
            if firstIndex == waiting.count || firstIndex > 1_024 {
                waiting.removeFirst(firstIndex)
                firstIndex = 0
            }
        }
        lastDeadline = waiting[firstIndex].deadline
        return waiting[firstIndex].kind
    }
}

extension EngineSession {
    /// Command of the connection for scripts or for notifications.
    enum Pending: Equatable {
        case authentication
        case role
        case memory
        case load(EngineScript)
        case subscription
        case ping
        case join
        case renewal
        case reap
        /// - isText: whether the text of the script was sent, because the server did not know its digest.
        case batch(EngineBatch, isText: Bool)
    }
}

extension EngineSession.Phase {
    /// Whether the diagram has this transition.
    func mayBecome(_ next: EngineSession.Phase) -> Bool {
        switch (self, next) {
        case (.stopped, .locating), (.resting, .locating), (.locating, .greeting), (.greeting, .joining),
            (.joining, .joined), (_, .stopped):
            true
        case (.resting, .greeting), (.greeting, .greeting), (.joining, .greeting), (.joined, .greeting): true
        case (.locating, .resting), (.greeting, .resting), (.joining, .resting), (.joined, .resting): true
        case (_, .locating), (_, .greeting), (_, .joining), (_, .joined), (_, .resting): false
        }
    }
}
