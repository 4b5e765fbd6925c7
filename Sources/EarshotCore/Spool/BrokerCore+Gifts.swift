internal import EarshotHTTP
internal import EarshotWire

/// Ownership transfer of bodies: a file with one receiver is moved to the receiver's destination instead of being
/// copied.
///
/// The shell names such a file after its attempt, not after its content. So a body with the same content gets another
/// file, and no file with several receivers is moved. `end` decides about the transfer at the end of the flight.
/// Afterwards the file is managed like any file of a terminal: counted, and released by the acknowledgement or loss,
/// even if the receiver has moved it.
extension BrokerCore {
    /// Returns the name for the complete body of an attempt that may be given away; nil if the body is named after its
    /// content.
    ///
    /// The decision is preliminary: a lookup in the cache follows, and another client may subscribe.
    func ownName(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard let flight = workers.flight(of: attempt, by: id), taker(of: flight) != nil else { return nil }
        return SpoolName.taken(of: attempt)
    }

    /// Marks the file of an outcome as owned by the request's client, if exactly one client is subscribed.
    mutating func giveAway(_ outcome: Outcome, to interest: Handle<Interest>) {
        guard interests[interest].takes, outcome.failure == nil, let response = outcome.response,
            response.source == nil, let file = response.file, SpoolName.isTaken(file), mayTake(interest)
        else { return }
        interests[interest].isGiven = true
    }

    /// Whether a repeated request would receive a body that was given to another client.
    func isGivenToAnother(
        _ interest: Handle<Interest>, _ fetch: Fetch, _ fingerprint: UInt64, by client: Handle<ClientSession>
    ) -> Bool {
        interests[interest].isGiven && fetch.options.subscribes && interests[interest].fingerprint == fingerprint
            && !isDue(interest, to: client)
    }

    /// Whether a growing body of `bytes` bytes, if known, will be given away as things stand. Its PROGRESS then names
    /// no file, so that no subscriber copies it meanwhile.
    func isToBeGiven(to interest: Handle<Interest>, _ bytes: Int?) -> Bool {
        let flight = leaf(ofOpen: interest)
        return taker(of: flight) == interest && !mayBeStored(flight, bytes)
    }

    /// Maximum body size of a flight in a message, if lower than the worker's limit.
    @inline(__always)
    func inlineBytes(of flight: Handle<Flight>) -> Int? {
        // An inline body needs no disk space.
        guard spooledBytes < limits.spoolBytes / 2, let interest = taker(of: flight), !mayBeStored(flight, nil) else {
            return nil
        }
        let isFile = if let number = interests[interest].extras { extras[number].delivery == .file } else { false }
        let bytes = isFile ? 0 : limits.takenBytes
        return bytes < workerLimits.inlineBytes ? bytes : nil
    }

    /// Returns the only interest in a flight, if its request takes ownership of the file.
    @inline(__always)
    private func taker(of flight: Handle<Flight>) -> Handle<Interest>? {
        guard let interest = onlyInterest(of: flight), mayTake(interest) else { return nil }
        return interest
    }

    /// Whether a request asked for ownership of the file and exactly one client is subscribed to its handler.
    @inline(__always)
    private func mayTake(_ interest: Handle<Interest>) -> Bool {
        guard interests[interest].takes, !interests[interest].isWarm, !isDurable(interest) else { return false }
        return listeners(of: interests[interest].handler).count == 1
    }

    /// Returns the only interest in a flight, whether direct or through redirects; nil for none or several.
    @inline(__always)
    private func onlyInterest(of flight: Handle<Flight>) -> Handle<Interest>? {
        var flight = flight
        while !flights[flight].parents.isEmpty {
            guard flights[flight].interests.isEmpty, let parent = flights[flight].parents.onlyMember else { return nil }
            flight = parent
        }
        return flights[flight].interests.onlyMember
    }

    /// Whether the cache could store the response of a flight with a body of this size.
    private func mayBeStored(_ flight: Handle<Flight>, _ bytes: Int?) -> Bool {
        guard facilities.isCaching, flights[flight].method == .get, flights[flight].mode != .noStore else {
            return false
        }
        return !flights[flight].isAlone && flights[flight].url.isHTTP && bytes ?? 0 < settings[.cacheSize] ?? .max
    }
}
