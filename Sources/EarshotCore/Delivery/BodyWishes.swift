internal import EarshotWire

/// Forms of a body that waiting requests require, in addition to the form in which it arrives.
public struct BodyWishes: Equatable, Sendable {
    /// Whether a request requires a file.
    public var file = false
    /// Largest size limit of a request that requires an inline body; 0 if there is none.
    public var inlineBytes = 0
}

/// Forms in which a body exists.
struct BodyForms {
    let inline: Bool
    let file: Bool
}

extension BrokerCore {
    /// Forms required by the requests of a worker's attempt. O(1) if no request requires one, otherwise O(requests).
    func wishes(of attempt: AttemptID, by id: WorkerID) -> BodyWishes {
        workers.flight(of: attempt, by: id).map { wishes(of: $0) } ?? BodyWishes()
    }

    /// Begins the cache's answer to a flight with the forms that precede `cacheRead`: those that its requests require.
    public mutating func wishes(of name: FlightName) -> BodyWishes {
        guard let flight = flights.number(of: name), flights[flight].hasWishes else { return BodyWishes() }
        return wishes(of: flight)
    }

    /// Notes that a request of this flight may require a form, also for the flights it was redirected to.
    mutating func wish(_ flight: Handle<Flight>) {
        var next = flight
        flights[next].hasWishes = true
        while case .following(let child) = flights[next].phase {
            next = child
            flights[next].hasWishes = true
        }
    }

    /// Whether the body of a response that arrived earlier has all the forms that the flight's requests require.
    func isAsWished(_ response: Outcome.Response, for flight: Handle<Flight>) -> Bool {
        let wishes = wishes(of: flight)
        return !(wishes.file && response.body != nil) && !(wishes.inlineBytes > 0 && response.file != nil)
    }

    private func wishes(of flight: Handle<Flight>) -> BodyWishes {
        var wishes = BodyWishes()
        guard flights[flight].hasWishes else { return wishes }
        for interest in flights.interests(of: flight) {
            guard let number = interests[interest].extras, !interests[interest].isWarm else { continue }
            switch extras[number].delivery {
            case .auto: break
            case .inline: wishes.inlineBytes = max(wishes.inlineBytes, extras[number].maxBytes ?? 0)
            case .file: wishes.file = true
            }
        }
        return wishes
    }
}
