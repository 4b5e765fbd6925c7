internal import EarshotWire

/// Deferred cancellation: a request can rejoin a flight that an earlier message of the same client has just left.
///
/// A scrolling list removes a row's request some messages before the next row requests the same URL. So a running
/// flight that loses its last request is not cancelled before the end of the pass. Its cancellation waits longer while
/// its client has unread messages, for at most `CoreLimits.maximumCancellationDeferralMessages` of them. Messages of
/// other clients neither prolong nor shorten the wait. If the transfer ends meanwhile, its outcome is kept until then.
extension BrokerCore {
    /// Clients whose unread messages may rejoin a flight that they have left.
    public var clientsThatMayRejoin: [ClientID] {
        guard !records.flights.deferredCancellations.isEmpty else { return [] }
        let clients = Set(records.flights.deferredCancellations.values.compactMap(\.message?.client))
        return clients.sorted { $0.rawValue < $1.rawValue }
    }

    /// Returns the position of the latest message of a client.
    func latestMessageMark(of client: Handle<ClientSession>) -> MessagePosition {
        MessagePosition(client: records.clients[client].id, messageNumber: records.clients[client].receivedMessageCount)
    }

    /// Cancels flights whose wait is over, and ends rejoined requests with the outcomes kept for them. O(deferred
    /// cancellations).
    ///
    /// - Parameter hasUnread: whether a client has unread messages.
    mutating func resolveDeferredCancellations(hasUnread: (ClientID) -> Bool, now: MonotonicTime) {
        guard !records.flights.deferredCancellations.isEmpty else { return }
        for flight in records.flights.deferredCancellations.keys.sorted() {
            // Requests of removed handlers do not rejoin. The deferral must still hold the outcome when they leave.
            guard records.flights.deferredCancellations[flight] != nil,
                let flight = liveFlight(records.flights.name(of: flight)),
                let deferred = records.flights.deferredCancellations[flight]
            else { continue }
            if records.flights.isAwaitedByRequest(flight) {
                _ = records.flights.endDeferral(of: flight)
                if let outcome = deferred.outcome { performStep(.endFlight(with: outcome), of: flight, now: now) }
            } else if !clientMayRejoin(deferred, hasUnread) {
                endFlightIfUnwanted(flight)
            }
        }
    }

    /// Whether the client of a deferred cancellation has unread messages within the limit.
    private func clientMayRejoin(_ deferred: DeferredCancellation, _ hasUnread: (ClientID) -> Bool) -> Bool {
        guard let message = deferred.message, hasUnread(message.client),
            let client = records.clients.handle(of: message.client)
        else { return false }
        // After BYE and HELLO the client's count starts again at 0.
        let number = records.clients[client].receivedMessageCount
        return number >= message.messageNumber
            && number - message.messageNumber < UInt64(records.limits.maximumCancellationDeferralMessages)
    }
}
