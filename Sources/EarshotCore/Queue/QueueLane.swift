internal import EarshotWire

/// Interests of one client at one origin, with one set of credentials, under one root and in one class.
struct QueueLane {
    struct Key: Equatable {
        /// The root in one class.
        var root: Handle<FairQueue.RootNode>
        @OptionalHandle var client: Handle<ClientSession>?
        var origin: Handle<OriginEntry>
        var scope: Handle<OriginScope>

        var hash: UInt32 { NumberHash.of(root.number, client?.number ?? .min, origin.number, scope.number) }
    }

    /// Resource that a parked lane waits for: room of a client, a principal or an origin, or the end of a
    /// cool-down.
    enum Resource: Equatable {
        /// Separate for each pool, because only that pool's dispatch visits the returning lane.
        case client(Handle<ClientSession>?, pool: Handle<WorkerPool>)
        /// Quota of transfers of a line's principal.
        case quota(line: Handle<FairQueue.Line>)
        case scope(Handle<OriginScope>)
        case origin(Handle<OriginEntry>)

        var hash: UInt32 {
            switch self {
            case .client(let client, let pool): NumberHash.of(0, client?.number ?? .min, pool.number)
            case .scope(let scope): NumberHash.of(1, scope.number)
            case .origin(let origin): NumberHash.of(2, origin.number)
            case .quota(let line): NumberHash.of(3, line.number)
            }
        }
    }

    /// State machine:
    ///
    /// ```
    /// rotating ⇄ parked     (a resource is missing at its turn; unparked)
    /// rotating → rotating   (a turn)
    /// ```
    ///
    /// A lane is freed in either phase when its last interest leaves.
    enum Phase: Equatable {
        /// In the rotation of its root. `after` is the resource for which it waited, until its next turn.
        case rotating(after: Resource?)
        case parked(Resource)
    }

    let key: Key
    let priority: PriorityClass
    /// Handlers in the order of their turns, without the fresh ones.
    var leaves = Chain<FairQueue.Leaf>()
    /// Fresh handlers, the newest first.
    var replacements = Chain<FairQueue.Leaf>()
    /// Turns of fresh handlers since the last turn of another one.
    var replacementTurns = 0
    private(set) var phase = Phase.rotating(after: nil)

    init(key: Key, priority: PriorityClass) {
        self.key = key
        self.priority = priority
    }

    /// Whether it was parked and has had no turn since.
    var hasReturned: Bool { if case .rotating(.some) = phase { true } else { false } }

    var isEmpty: Bool { leaves.isEmpty && replacements.isEmpty }

    /// Changes the phase. All changes go through here.
    mutating func enter(_ next: Phase) {
        precondition(
            Self.isLegal(from: phase, to: next), "a lane of root \(key.root) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.rotating, .parked), (.rotating, .rotating(nil)): true
        case (.parked(let resource), .rotating(let last)): last == resource
        case (.rotating, .rotating), (.parked, .parked): false
        }
    }
}
