internal import EarshotCore
internal import EarshotWire

/// Future event of the simulated world. Links have the numbers of their connections.
enum PlannedEvent {
    case clientActs(Int)
    case clientConnects(Int)
    case clientAcknowledges(client: Int, link: UInt64)
    /// A message reaches the broker.
    case messageFromClient(link: UInt64, PeerMessage<NumberedMessage>)
    /// A message reaches a client.
    case messageToClient(link: UInt64, NumberedAnswer)
    /// The broker is notified of a client's disconnection.
    case clientGone(link: UInt64)
    case clientWritable(link: UInt64)
    case workerStarts(Int)
    case workerActs(Int)
    case messageFromWorker(link: UInt64, PeerMessage<WorkerMessage>)
    case messageToWorker(link: UInt64, PoolMessage)
    /// The broker is notified of a worker's disconnection.
    case workerConnectionLost(link: UInt64)
    /// The broker is notified of the end of a worker's process.
    case workerGone(link: UInt64)
    /// The broker is notified of the end of a process that it awaits.
    case processEnds(Int32)
    case transferEnds(worker: Int, AttemptID)
    case limitsChange
    /// A broker's lifetime ends; clients may make a few more requests.
    case prepareBrokerDeath
    case brokerDies
    /// The disk becomes full, or has room again.
    case diskChanges

    /// Message sent by a peer.
    enum PeerMessage<Message> {
        case message(Message)
        /// Encoded message, to be parsed by the decoder.
        case bytes([UInt8])
    }
}

/// Event and its time; events of the same time take place in the order of planning.
struct PlannedEntry: Comparable {
    var at: Int64
    var insertionOrder: UInt64
    var plannedEvent: PlannedEvent

    static func < (left: PlannedEntry, right: PlannedEntry) -> Bool {
        (left.at, left.insertionOrder) < (right.at, right.insertionOrder)
    }
    static func == (left: PlannedEntry, right: PlannedEntry) -> Bool { left.insertionOrder == right.insertionOrder }
}

/// Both directions of a connection, each in order.
struct Link {
    /// Client program or worker process at its other end.
    var peerNumber: Int
    /// Whether the connection is broken.
    var isBroken = false
    /// Whether messages sent before the break still arrive.
    var deliversPendingMessages = false
    /// Arrival of the last message in each direction.
    var lastArrivalAtBroker: Int64 = 0
    var lastArrivalAtPeer: Int64 = 0
}
