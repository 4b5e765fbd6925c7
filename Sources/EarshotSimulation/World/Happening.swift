internal import EarshotCore
internal import EarshotWire

/// What will happen in the simulated world at its time. Links are numbered like the connections they are.
enum Happening {
    case clientActs(Int)
    case clientConnects(Int)
    /// A client requests URLs that were fetched for the broker before.
    case clientAsksAfterDeath(Int)
    case clientAcknowledges(client: Int, link: UInt64)
    /// A message reaches the broker.
    case fromClient(link: UInt64, Said<ClientMessage>)
    /// A message reaches a client.
    case toClient(link: UInt64, BrokerMessage)
    /// The broker hears that a client's connection is gone.
    case clientGone(link: UInt64)
    case clientWritable(link: UInt64)
    case workerStarts(Int)
    case workerActs(Int)
    case fromWorker(link: UInt64, Said<WorkerMessage>)
    case toWorker(link: UInt64, PoolMessage)
    /// The broker hears that a worker's connection is gone.
    case workerCut(link: UInt64)
    /// The broker hears that a worker's process is gone.
    case workerGone(link: UInt64)
    case transferEnds(worker: Int, AttemptID)
    case limitsChange
    /// A broker's life is over; clients may make a few requests yet.
    case brokerEnds
    case brokerDies
    /// The disk is full, or has room again.
    case diskChanges

    /// What a peer put on the wire.
    enum Said<Message> {
        case message(Message)
        /// Bytes, to be read by the decoder.
        case bytes([UInt8])
    }
}

/// A happening and its time; those of one time happen in the order in which they were planned.
struct Plan: Comparable {
    var at: Int64
    var order: UInt64
    var happening: Happening

    static func < (left: Plan, right: Plan) -> Bool { (left.at, left.order) < (right.at, right.order) }
    static func == (left: Plan, right: Plan) -> Bool { left.order == right.order }
}

/// One connection's two ways, each in order.
struct Link {
    /// The client program or worker process at its other end.
    var peer: Int
    /// Whether nothing gets through any more.
    var isCut = false
    /// Of one that is cut, whether what its peer had said still arrives.
    var isDeaf = false
    /// When the last message each way arrives.
    var lastUp: Int64 = 0
    var lastDown: Int64 = 0
}
