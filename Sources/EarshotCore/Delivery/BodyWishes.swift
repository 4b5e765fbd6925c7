public import EarshotWire

/// In which forms those who wait for a body want it, beside the one in which it comes.
public struct BodyWishes: Equatable, Sendable {
    /// Somebody wants it as a file.
    public var file = false
    /// Somebody wants it in a message if it has so many bytes at most; 0 if nobody does.
    public var inlineBytes = 0
}

/// In which forms a body is there.
struct BodyForms {
    let inline: Bool
    let file: Bool
}

extension BrokerCore {
    /// What those wish who wait for a worker's attempt. O(1) unless there was a wish, then O(those who wait).
    public func wishes(of attempt: AttemptID, by id: WorkerID) -> BodyWishes {
        workers.flight(of: attempt, by: id).map { wishes(of: $0) } ?? BodyWishes()
    }

    /// What those wish who wait for an answer of the cache.
    public func wishes(of name: FlightName) -> BodyWishes {
        flight(name).map { wishes(of: $0) } ?? BodyWishes()
    }

    /// From now on somebody who waits for this flight, or for those that it was redirected to, may have a wish.
    mutating func wish(_ flight: Int32) {
        var next = flight
        flights[next].hasWishes = true
        while case .following(let child) = flights[next].phase {
            next = child
            flights[next].hasWishes = true
        }
    }

    /// Whether the body of an answer that came before anybody asked is in a form that all who wait want.
    func isAsWished(_ response: Outcome.Response, for flight: Int32) -> Bool {
        let wishes = wishes(of: flight)
        return !(wishes.file && response.body != nil) && !(wishes.inlineBytes > 0 && response.file != nil)
    }

    private func wishes(of flight: Int32) -> BodyWishes {
        var wishes = BodyWishes()
        if flights[flight].hasWishes { collectWishes(of: flight, into: &wishes) }
        return wishes
    }

    private func collectWishes(of flight: Int32, into wishes: inout BodyWishes) {
        for interest in flightChains.members(of: flights[flight].interests) {
            let number = interests[interest].extras
            guard number >= 0, !interests[interest].isWarm else { continue }
            switch extras[number].delivery {
            case .auto: break
            case .inline: wishes.inlineBytes = max(wishes.inlineBytes, extras[number].maxBytes ?? 0)
            case .file: wishes.file = true
            }
        }
        for parent in parentChains.members(of: flights[flight].parents) { collectWishes(of: parent, into: &wishes) }
    }
}
