internal import EarshotHTTP
internal import OrderedCollections

/// Responses in the cache that wait for room in the windows of their receivers.
extension Cache {
    /// Makes a flight that the cache can answer wait if none of its receivers has room.
    ///
    /// - Returns: whether it waits.
    static func waitIfReceiversFull(_ flight: Handle<Flight>, in records: inout Records) -> Bool {
        var full: OrderedSet<Handle<ClientSession>> = []
        var isServed = records.flights[flight].isAwaitedByOtherNodes
        records.forEachInterest(of: flight) { records, interest in
            guard let owner = records.requests[interest].owner, !records.hasRoomForStoredResult(owner) else {
                isServed = true
                return
            }
            full.append(owner)
        }
        guard !isServed, !full.isEmpty else { return false }
        records.cachePlans[flight] = CachePlan(waitsForReceiverRoom: true)
        for owner in full { blockFlight(flight, by: owner, in: &records) }
        return true
    }

    private static func blockFlight(
        _ flight: Handle<Flight>, by client: Handle<ClientSession>, in records: inout Records
    ) {
        let reference = records.clients.reference(to: client)
        // Removed requests may leave their flights behind.
        let sweepThreshold = 64 + 2 * Int(records.clients[client].ownedRequests.count)
        if records.storedResults.flightCount(blockedBy: reference) > sweepThreshold {
            let left = records.storedResults.flights(blockedBy: reference).filter {
                flightWaitingForRoom($0, in: &records) != nil
            }
            var seen: Set<GenerationalHandle<Flight>> = []
            records.storedResults.replaceFlights(
                left.filter { seen.insert($0.reference).inserted }, blockedBy: reference)
        }
        records.storedResults.blockFlight(records.flights.name(of: flight), by: reference)
    }

    /// The flight of this name, if it waits for room.
    static func flightWaitingForRoom(_ name: FlightName, in records: inout Records) -> Handle<Flight>? {
        guard let flight = records.flights.handle(of: name), records.cachePlans[flight]?.waitsForReceiverRoom == true
        else { return nil }
        return flight
    }

    /// Looks up again a flight that waits for room, since it has a new receiver.
    static func receiverChanged(of flight: Handle<Flight>, in records: inout Records) {
        guard !records.cachePlans.isEmpty, records.cachePlans[flight]?.waitsForReceiverRoom == true else { return }
        lookUpAgain(flight, in: &records)
    }

    /// Reserves room for the answer of a flight in the window of its first receiver.
    static func reserveWindowRoom(
        for flight: Handle<Flight>, in records: inout Records
    ) -> GenerationalHandle<ClientSession>? {
        var receiver: Handle<ClientSession>?
        records.forEachInterest(of: flight) { records, interest in
            receiver = receiver ?? records.requests[interest].owner
        }
        guard let receiver else { return nil }
        records.clients[receiver].cacheReservationCount += 1
        return records.clients.reference(to: receiver)
    }

    /// Removes the cache plan of a flight, and releases the room that it reserved.
    static func removePlan(of flight: Handle<Flight>, in records: inout Records) -> CachePlan? {
        guard let plan = records.cachePlans.removeUnlessEmpty(forKey: flight) else { return nil }
        if let client = plan.reservedReceiver.flatMap({ records.clients.resolve($0) }) {
            records.clients[client].cacheReservationCount -= 1
        }
        return plan
    }
}
