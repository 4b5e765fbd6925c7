internal import EarshotWire

/// Flight of this core, which may end before its claim.
package struct LocalFlight: Hashable, CustomStringConvertible {
    let reference: GenerationalHandle<Flight>

    package init(_ reference: GenerationalHandle<Flight>) { self.reference = reference }

    var id: UInt64 { reference.generation }

    var name: FlightName { FlightName(reference: reference) }

    package var description: String { "flight \(id)" }
}

/// Work that an event of the cluster causes in the core.
enum ClusterEffect: Equatable {
    /// The flight may start here.
    case start(LocalFlight)
    /// The flight, which waits for its own slot or runs, serves other nodes too.
    case hosting(LocalFlight)
    /// An attempt for other nodes may start here. The record is a `SharedRequest`. The core calls `ClusterBook.host`, or
    /// `release` for one that cannot be used.
    case host(ClusterKey, FencingToken, record: [UInt8], PriorityClass)
    /// The attempt of another node ended.
    case result(LocalFlight, [UInt8])
    /// No other node wants the flight any longer.
    case abort(LocalFlight)
    /// The flight returns to the local queue, without a claim.
    case requeue(LocalFlight)
    case coolDown(CoolDownNotice)
    /// The node began or ceased to fetch without the engine.
    case mode(isCoordinated: Bool)
}
