/// Slow readers: clients that do not acknowledge their terminals are disconnected as `too-slow`.
extension Delivery {
    /// Starts a watch over a client with many bytes due, unless one runs.
    static func watchForStall(_ client: Handle<ClientSession>, in records: inout Records) {
        guard records.clients[client].deliveries.isUnwatched(stalledBytes: records.limits.stalledBytes) else { return }
        let serial = records.nextSerial()
        records.clients[client].deliveries.beginWatch(serial)
        let end = records.clock.advanced(byMilliseconds: records.limits.stallMilliseconds)
        records.setTimer(end, .stalled(client: client, stall: serial))
    }

    /// Disconnects a client that has acknowledged nothing during a watch; otherwise starts the next watch.
    static func stallEnded(_ client: Handle<ClientSession>, in records: inout Records) {
        let isReading = !records.pulls.isEmpty && records.pulls.takeActivity(of: client)
        let stalledBytes = records.limits.stalledBytes
        if records.clients[client].deliveries.endWatch(stalledBytes: stalledBytes, isReading: isReading) {
            disconnect(client, in: &records)
        } else {
            watchForStall(client, in: &records)
        }
    }

    /// Disconnects a client to which more is due than the bounds allow, or which waits while its principal has too many.
    static func disconnectIfOverdue(_ client: Handle<ClientSession>, in records: inout Records) {
        guard
            records.clients[client].deliveries.isOverdue(DeliveryWindow.Bounds(records.limits))
                || records.quotas.hasTooManyTerminals(records.clients[client].principal)
                    && records.clients[client].deliveries.waiting > 0
        else { return }
        disconnect(client, in: &records)
    }

    /// Disconnects a client that reads too slowly. Its session does not survive. Idempotent.
    static func disconnect(_ client: Handle<ClientSession>, in records: inout Records) {
        guard !records.clients[client].isClosing else { return }
        records.clients[client].isClosing = true
        // Not at once, since the caller may be processing its requests. The timer lies in the future, so it fires in a
        // later pass.
        if records.clients[client].isAway {
            records.setLeaseTimer(records.clock.advanced(byNanoseconds: 1), of: client)
        }
        records.outbox.append(.client(.close(records.clients[client].id, reason: "too-slow")))
    }
}
