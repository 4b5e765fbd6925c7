internal import EarshotCore
internal import RESP

/// Connections of a node to the engine. `EngineSession` decides when each is opened, and `EngineClient` opens it.
enum EngineLink: Int, CaseIterable, Sendable {
    /// Scripts.
    case scripts
    /// Messages of the node's channel.
    case notifications
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
    private var waitingCommands: [(kind: Kind, deadline: MonotonicTime)] = []
    private var firstIndex = 0
    /// Deadline of the command that the latest reply answered.
    private var latestReplyDeadline: MonotonicTime?

    /// Time by which the next reply must arrive; nil without commands.
    var deadline: MonotonicTime? { firstIndex < waitingCommands.count ? waitingCommands[firstIndex].deadline : nil }

    /// Microseconds between the command of the latest reply and now.
    func latencyMicroseconds(now: MonotonicTime, timeoutMilliseconds: Int) -> Int {
        guard let sent = latestReplyDeadline?.advanced(byMilliseconds: -timeoutMilliseconds) else { return 0 }
        return Int(max(0, now.nanoseconds - sent.nanoseconds) / 1_000)
    }

    mutating func append(_ kind: Kind, until deadline: MonotonicTime) { waitingCommands.append((kind, deadline)) }

    /// Removes and returns the command of the next reply; nil for a reply without a command.
    mutating func takeNext() -> Kind? {
        guard firstIndex < waitingCommands.count else { return nil }
        defer {
            firstIndex += 1
            if firstIndex == waitingCommands.count || firstIndex > 1_024 {
                waitingCommands.removeFirst(firstIndex)
                firstIndex = 0
            }
        }
        latestReplyDeadline = waitingCommands[firstIndex].deadline
        return waitingCommands[firstIndex].kind
    }
}

extension EngineSession {
    /// Command of the connection for scripts or for notifications.
    enum PendingCommand: Equatable {
        case authentication
        case roleQuery
        case memoryQuery
        case scriptLoad(EngineScript)
        case subscription
        case ping
        case join
        case renewal
        case reapDeadNodes
        /// - isText: whether the text of the script was sent, because the server did not know its digest.
        case batch(EngineBatch, isText: Bool)
    }
}

extension EngineSession.Phase {
    /// Whether the diagram has this transition.
    func mayBecome(_ next: EngineSession.Phase) -> Bool {
        switch (self, next) {
        case (.stopped, .locating), (.backingOff, .locating), (.locating, .connecting), (.connecting, .awaitingLease),
            (.awaitingLease, .joined), (_, .stopped):
            true
        case (.backingOff, .connecting), (.connecting, .connecting), (.awaitingLease, .connecting),
            (.joined, .connecting):
            true
        case (.locating, .backingOff), (.connecting, .backingOff), (.awaitingLease, .backingOff),
            (.joined, .backingOff):
            true
        case (_, .locating), (_, .connecting), (_, .awaitingLease), (_, .joined), (_, .backingOff): false
        }
    }
}
