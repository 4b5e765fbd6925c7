internal import EarshotWire

/// Action that the core requests of its shell. Actions are executed in order.
enum ClientAction: Equatable {
    /// Send over the current connection; discarded with it.
    indirect case send(ClientMessage)
    /// Send over a further connection; discarded with it.
    case sendRead(BodyRead, connection: Int)
    /// Deliver the terminal, with the body that came in its message, to the consumer.
    case deliver(DeliveredTerminal)
    /// Store the first `count` bytes of the message's body in the file with this number, which may be new.
    case store(file: Int, offset: Int, count: Int)
    /// Deliver the terminal with its body in the file with this number.
    case deliverReceived(DeliveredTerminal, file: Int)
    /// Report progress of a body whose first bytes are in the file with this number.
    indirect case reportGrowth(Progress, file: Int)
    /// Report that the reading of a terminal's body begins, into the file with this number.
    case beginBody(DeliveredTerminal, file: Int)
    /// Report that the first bytes of a terminal's body are in the file with this number.
    case reportArrival(DeliveredTerminal, bytes: Int, file: Int)
    /// Close a file.
    case discard(file: Int)
    /// Report an event to the consumer.
    indirect case report(ClientReport)
    /// Close the connection and open another one.
    case reconnect
}

/// Event of the core other than a terminal.
enum ClientReport: Equatable {
    case accepted(RequestKey)
    case progress(Progress)
    case cancelled(RequestKey, wasOpen: Bool)
    case removed(HandlerPattern, count: Int)
    /// The message's body is the answer.
    case queryAnswered(Query)
    /// In the broker's canonical form.
    case settingChanged(SettingWords)
    /// The broker refused a message. The request of a FETCH has ended.
    case messageRefused(RefusedMessage)
    case stateChanged(ClientState)
}
