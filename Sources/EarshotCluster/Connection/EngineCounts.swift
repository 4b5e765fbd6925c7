/// Calls and messages of a membership, as this node counts them. The engine counts them as well, and heartbeats compare.
///
/// An engine with another number of calls has lost data, although the connection lasts: an older copy took its place. If
/// it has more messages, some did not arrive, although their connection lasts.
struct EngineCounts {
    /// Numbers that an engine may name: -1 for a lost one, and those that its scripts count exactly.
    static let range = -1...(1 << 53)

    /// Calls with an answer. A connection keeps the order of answers, so the engine has as many at each heartbeat.
    private var calls = 0
    /// Messages that arrived, and those that were lost.
    private var messages = 0
    /// Messages that the engine had sent by the latest heartbeat.
    private var sent = 0
    /// Messages that must arrive before the reply to the PING on their connection; nil without one.
    private var messagesBeforePong: Int?

    mutating func answered() { calls += 1 }

    mutating func received() { messages += 1 }

    /// Takes the numbers of the engine.
    ///
    /// - Returns: whether the engine knows all calls.
    mutating func renewed(calls: Int, messages: Int) -> Bool {
        sent = messages
        return calls == self.calls
    }

    /// A PING leaves on the connection of messages. All that the engine had sent by the latest heartbeat arrive before its
    /// reply.
    mutating func pinged() { if messagesBeforePong == nil { messagesBeforePong = sent } }

    /// - Returns: whether messages were lost. Each loss is reported once.
    mutating func ponged() -> Bool {
        guard let messagesBeforePong else { return false }
        self.messagesBeforePong = nil
        guard messages < messagesBeforePong else { return false }
        messages = messagesBeforePong
        return true
    }
}
