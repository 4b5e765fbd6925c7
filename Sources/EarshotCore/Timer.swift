internal import EarshotWire

/// One moment the core wants to be asked at. A timer whose subject is gone by then is stale and does nothing.
struct Timer: Comparable {
    enum Subject: Equatable {
        /// A request's deadline.
        case deadline(interest: Int32, serial: UInt64)
        /// Nobody came for a held terminal.
        case grace(interest: Int32, serial: UInt64)
        /// Nobody came back to a handler that owns requests.
        case abandoned(handler: Int32, absence: UInt64)
        /// A file lent to a client that does not acknowledge is taken back.
        case lent(file: String)
        /// A connection has said no HELLO.
        case greeting(ClientID)
        /// A client that is away did not come back.
        case lease(client: Int32, absence: UInt64)
        /// End of a watch over a client with many bytes due.
        case stalled(client: Int32, stall: UInt64)
        /// What was kept aside is kept no longer.
        case aside(serial: UInt64)
        /// The oldest cookie jar without handlers is kept no longer.
        case jars(serial: UInt64)
        /// A durable request was kept for its time.
        case expired(interest: Int32, serial: UInt64)
        /// A flight's pause before its next attempt is over.
        case retry(FlightName)
        /// The time between two starts at an origin is over.
        case paused(origin: Int32, pause: UInt64)
        /// The time an origin asked for is over.
        case cooled(scope: Int32, serial: UInt64)
        /// A spool that was full is tried again.
        case spoolRetry
        /// Nobody came back to a pool whose last worker had gone.
        case lonely(pool: Int32, absence: UInt64)
        /// Workers of an earlier broker are waited for no longer.
        case opening
        /// Attempts of earlier brokers that nobody asked for are kept no longer.
        case adoption
        /// End of a suspect's isolation in this worker.
        case isolation(WorkerID)
        /// End of a suspect's wait for an empty worker, unless another worker died of it.
        case suspicion(FlightName, deaths: UInt8)
        /// A worker with work has been silent.
        case heartbeat(WorkerID)
    }

    var at: Tick
    var subject: Subject

    static func < (left: Timer, right: Timer) -> Bool { left.at < right.at }
}
