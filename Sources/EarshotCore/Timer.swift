internal import EarshotWire

/// Timer of the core. A timer is stale, and has no effect, once its subject is gone; the generation, serial or epoch in it
/// shows that.
struct Timer: Comparable {
    enum Subject: Equatable {
        /// Deadline of a request.
        case deadline(GenerationalHandle<Interest>)
        /// End of a request's wait for a cool-down.
        case coolDownWait(GenerationalHandle<Interest>)
        /// Time of a request's next PROGRESS.
        case progress(GenerationalHandle<Interest>)
        /// End of the grace period of a held outcome.
        case grace(GenerationalHandle<Interest>)
        /// End of the grace period of a handler's own requests without a listener.
        case abandoned(handler: Handle<HandlerEntry>, absence: UInt64)
        /// HELLO timeout of a connection.
        case greeting(ClientID)
        /// End of the lease of a session that is away.
        case lease(client: Handle<ClientSession>, absence: UInt64)
        /// End of a watch over a client with many bytes due.
        case stalled(client: Handle<ClientSession>, stall: UInt64)
        /// Expiry of the oldest idle cookie jar.
        case jars(serial: UInt64)
        /// Expiry of a durable request.
        case expired(interest: Handle<Interest>, timer: UInt64)
        /// End of a flight's back-off.
        case retry(FlightName)
        /// End of the spacing between two starts at an origin.
        case paused(origin: Handle<OriginEntry>, pause: UInt64)
        /// End of an origin's cool-down.
        case cooled(scope: Handle<OriginScope>, serial: UInt64)
        /// Next attempt to spill into a spool that was full.
        case spoolRetry
        /// End of the time for which a pool without workers waits for one.
        case poolEmpty(pool: Handle<WorkerPool>, absence: UInt64)
        /// End of the time in which workers of an earlier broker may report.
        case opening
        /// Next step of an origin's slow start.
        case slowStart(origin: Handle<OriginEntry>, serial: UInt64)
        /// End of a suspect's isolation at this worker.
        case isolation(WorkerID)
        /// End of a suspect's wait for an empty worker, unless another worker has died with it since.
        case suspicion(FlightName, deaths: UInt8)
        /// Heartbeat check of a worker.
        case heartbeat(WorkerID)
        /// Division of the rate limits, unless it has another time now.
        case rates(Tick)
    }

    var at: Tick
    var subject: Subject

    static func < (left: Timer, right: Timer) -> Bool { left.at < right.at }
}
