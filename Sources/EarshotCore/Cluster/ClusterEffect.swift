internal import EarshotWire

/// Flight of this core, by its ID.
struct LocalFlight: Hashable, CustomStringConvertible {
    let id: UInt64

    var description: String { "flight \(id)" }
}

/// Work that an event of the cluster causes in the core.
enum ClusterEffect: Equatable {
    /// The flight may start here.
    case start(LocalFlight)
    /// An attempt for another node may start here. The record is a `SharedRequest`; one that cannot be used is released.
    case host(ClusterKey, FencingToken, record: [UInt8], PriorityClass)
    /// Another node's attempt ended.
    case result(LocalFlight, [UInt8])
    /// The core cancels the hosted attempt, and reports its end as usual.
    case abort(ClusterKey, FencingToken)
    case coolDown(CoolDownNotice)
    /// The node began or ceased to fetch without the engine.
    case mode(isCoordinated: Bool, members: Int)
}
