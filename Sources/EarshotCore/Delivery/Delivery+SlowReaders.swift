/// Slow readers: clients that do not acknowledge their terminals are disconnected as `too-slow`.
extension Delivery {
    /// Starts a watch over a client with many bytes due, unless one runs.
    static func watchForStall(_ client: Handle<ClientSession>, in records: inout Records) {
        guard
            records.clients[client].deliveries.needsStallWatch(
                stalledBytes: records.limits.maximumStalledBodyBytesPerClient)
        else { return }
        let serial = records.nextSerial()
        records.clients[client].deliveries.beginStallWatch(serial)
        let end = records.latestEventTime.advanced(byMilliseconds: records.limits.maximumStallMilliseconds)
        records.setTimer(at: end, for: .stallWatchEnd(client: client, stall: serial))
    }

    /// Disconnects a client that has acknowledged nothing during a watch; otherwise starts the next watch.
    static func stallWatchEnded(_ client: Handle<ClientSession>, in records: inout Records) {
        let isReading = !records.bodyPulls.isEmpty && records.bodyPulls.consumeActivityFlag(of: client)
        let stalledBytes = records.limits.maximumStalledBodyBytesPerClient
        if records.clients[client].deliveries.endStallWatch(stalledBytes: stalledBytes, isReading: isReading) {
            disconnect(client, in: &records)
        } else {
            watchForStall(client, in: &records)
        }
    }

    /// Disconnects a client to which more is due than the bounds allow, or which waits while its principal has too
    /// many.
    static func disconnectIfOverdue(_ client: Handle<ClientSession>, in records: inout Records) {
        guard
            records.clients[client].deliveries.exceedsDueLimits(DeliveryWindow.DueLimits(records.limits))
                || records.quotaUse.hasTooManyTerminals(records.clients[client].principal)
                    && records.clients[client].deliveries.unsentCount > 0
        else { return }
        disconnect(client, in: &records)
    }

    /// Disconnects a client that reads too slowly. Its session does not survive. Idempotent.
    static func disconnect(_ client: Handle<ClientSession>, in records: inout Records) {
        guard !records.clients[client].isCloseRequested else { return }
        records.clients[client].isCloseRequested = true
        // Not at once, since the caller may be processing its requests. The timer lies in the future, so it fires in a
        // later pass.
        if records.clients[client].isAway {
            records.setSessionLeaseTimer(at: records.latestEventTime.advanced(byNanoseconds: 1), of: client)
        }
        records.outbox.appendAction(.client(.close(records.clients[client].id, reason: "too-slow")))
    }
}
