internal import EarshotHTTP
public import EarshotWire

/// Bodies that are given away: a file that is nobody else's is moved to where its one receiver wants it, and not
/// copied.
///
/// It is written under the attempt's name and gets one of its own, never its content's: so a body of the same content
/// is another file, and nobody's file is renamed away. Whether it is given away is said when the flight ends, in `end`.
/// From then on it is as any file of a terminal: held, counted, and released when that is acknowledged or lost, be it
/// there or not.
extension BrokerCore {
    private static let takenSuffix = ".taken"

    /// What the shell is to call the whole body of an attempt in place of its content's name; nil for that.
    ///
    /// The cache has not been asked yet, and somebody may come to listen: it need not be given away in the end.
    public func ownName(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard let flight = workers.flight(of: attempt, by: id), taker(of: flight) != nil else { return nil }
        return "\(attempt)\(Self.takenSuffix)"
    }

    /// Whether a file that the shell finds when it starts is one that an earlier broker gave away.
    public static func isOwnName(_ file: String) -> Bool { file.hasSuffix(takenSuffix) }

    /// Makes the file of an outcome the one request's that it is for, if exactly one client is to hear of it.
    mutating func giveAway(_ outcome: Outcome, to interest: Int32) {
        guard mayTake(interest), outcome.failure == nil, let response = outcome.response, response.source == nil,
            let file = response.file, Self.isOwnName(file)
        else { return }
        interests[interest].isGiven = true
    }

    /// Whether a request that is asked again is another client's, with a body that was given away to that one.
    func isGivenToAnother(_ interest: Int32, _ fetch: Fetch, _ fingerprint: UInt64, by client: Int32) -> Bool {
        interests[interest].isGiven && fetch.options.subscribes && interests[interest].fingerprint == fingerprint
            && !isDue(interest, to: client)
    }

    /// Whether, as things stand, a body will be given away that has so many bytes, if that is known: then it is not
    /// told where it grows, and nobody copies it meanwhile.
    func isToBeGiven(to interest: Int32, _ bytes: Int?) -> Bool {
        let flight = leaf(of: interests[interest].flight)
        return taker(of: flight) == interest && !mayBeStored(flight, bytes)
    }

    /// Bytes up to which a flight's body is to travel in a message, if they are fewer than usual.
    @inline(__always)
    func inlineBytes(of flight: Int32) -> Int? {
        // A message needs no room on the disk.
        guard spooledBytes < limits.spoolBytes / 2, let interest = taker(of: flight), !mayBeStored(flight, nil) else {
            return nil
        }
        let number = interests[interest].extras
        let bytes = number >= 0 && extras[number].delivery == .file ? 0 : limits.takenBytes
        return bytes < workerLimits.inlineBytes ? bytes : nil
    }

    /// The one request that waits for a flight, if it takes a file; nil if others wait too, or it does not.
    @inline(__always)
    private func taker(of flight: Int32) -> Int32? {
        guard let interest = onlyInterest(of: flight), mayTake(interest) else { return nil }
        return interest
    }

    /// Whether a request asked for a file of its own and one client alone listens.
    @inline(__always)
    private func mayTake(_ interest: Int32) -> Bool {
        guard interests[interest].takes, !interests[interest].isWarm, !isDurable(interest) else { return false }
        return listeners(of: interests[interest].handler).count == 1
    }

    /// The one request that waits for a flight, itself or by a redirect; nil for none or several.
    @inline(__always)
    private func onlyInterest(of flight: Int32) -> Int32? {
        var flight = flight
        while !flights[flight].parents.isEmpty {
            guard flights[flight].interests.isEmpty, let parent = flights[flight].parents.onlyMember else { return nil }
            flight = parent
        }
        return flights[flight].interests.onlyMember
    }

    /// Whether the cache could keep the answer to a flight, with so many bytes of body.
    private func mayBeStored(_ flight: Int32, _ bytes: Int?) -> Bool {
        guard isCaching, flights[flight].method == .get, flights[flight].mode != .noStore else { return false }
        return !flights[flight].isAlone && flights[flight].url.isHTTP && bytes ?? 0 < settings[.cacheSize] ?? .max
    }
}
