internal import EarshotWire

/// What the client's core asks its shell to do, in this order.
enum ClientAction: Equatable {
    /// Over the connection that stands; dropped with it.
    indirect case send(ClientMessage)
    /// Hand the terminal, and the body that came with it, to the consumer.
    case deliver(Delivery)
    indirect case report(ClientReport)
    /// Close the connection and make another.
    case reconnect
}

/// What the client's core tells besides terminals.
enum ClientReport: Equatable {
    case accepted(RequestKey)
    case progress(Progress)
    case cancelled(RequestKey)
    case removed(HandlerPattern, count: Int)
    /// The body that came with it is the answer.
    case answered(Query)
    /// In the broker's normal form.
    case changed(SettingWords)
    /// The broker refused something; a request named in it is over.
    case refused(ErrorReply)
    case state(ClientState)
}
