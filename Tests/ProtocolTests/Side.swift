import EarshotWire

/// One of the four kinds of head, by socket and sender. Its name is that of its folder of vectors.
enum Side: String, CaseIterable {
    /// Client to broker on `bus`.
    case client
    /// Broker to client on `bus`.
    case broker
    /// Worker to broker on `work`.
    case worker
    /// Broker to worker on `work`.
    case pool

    func decode(_ head: [UInt8]) throws(WireError) -> AnyMessage {
        switch self {
        case .client: .client(try NumberedMessage(head: head))
        case .broker: .broker(try NumberedAnswer(head: head))
        case .worker: .worker(try WorkerMessage(head: head))
        case .pool: .pool(try PoolMessage(head: head))
        }
    }
}

/// A message of any kind.
enum AnyMessage: Equatable {
    case client(NumberedMessage)
    case broker(NumberedAnswer)
    case worker(WorkerMessage)
    case pool(PoolMessage)

    func encoded() -> [UInt8] {
        switch self {
        case .client(let message): message.encoded()
        case .broker(let message): message.encoded()
        case .worker(let message): message.encoded()
        case .pool(let message): message.encoded()
        }
    }
}
