internal import EarshotWire

/// Interests of one client at one origin, with one set of credentials, under one root and in one class.
struct QueueLane {
    struct Key: Equatable {
        /// The root in one class.
        var rootQueue: Handle<FairQueue.RootQueue>
        @OptionalHandle var client: Handle<ClientSession>?
        var origin: Handle<OriginEntry>
        var scope: Handle<OriginScope>

        var hash: UInt32 {
            NumberHash.hash(
                rootQueue.recordNumber, client?.recordNumber ?? .min, origin.recordNumber, scope.recordNumber)
        }
    }

    /// Resource that a parked lane waits for: room of a client, a principal or an origin, or the end of a cool-down.
    enum AwaitedResource: Equatable {
        /// Separate for each pool, because only that pool's dispatch visits the returning lane.
        case clientWindow(Handle<ClientSession>?, pool: Handle<WorkerPool>)
        /// Quota of transfers of a line's principal.
        case transferQuota(principalQueue: Handle<FairQueue.PrincipalQueue>)
        case scopeCoolDown(Handle<OriginScope>)
        case originRoom(Handle<OriginEntry>)

        var hash: UInt32 {
            switch self {
            case .clientWindow(let client, let pool):
                NumberHash.hash(0, client?.recordNumber ?? .min, pool.recordNumber)
            case .scopeCoolDown(let scope): NumberHash.hash(1, scope.recordNumber)
            case .originRoom(let origin): NumberHash.hash(2, origin.recordNumber)
            case .transferQuota(let line): NumberHash.hash(3, line.recordNumber)
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
        case rotating(after: AwaitedResource?)
        case parked(AwaitedResource)
    }

    let key: Key
    let priority: PriorityClass
    /// Handlers in the order of their turns, without the fresh ones.
    var rotatingHandlerQueues = LinkedList<FairQueue.HandlerQueue>()
    /// Fresh handlers, the newest first.
    var freshReplacementQueues = LinkedList<FairQueue.HandlerQueue>()
    /// Turns of fresh handlers since the last turn of another one.
    var replacementTurnsInRow = 0
    private(set) var phase = Phase.rotating(after: nil)

    init(key: Key, priority: PriorityClass) {
        self.key = key
        self.priority = priority
    }

    /// Whether it was parked and has had no turn since.
    var isUnparkedWithoutTurn: Bool { if case .rotating(.some) = phase { true } else { false } }

    var isEmpty: Bool { rotatingHandlerQueues.isEmpty && freshReplacementQueues.isEmpty }

    /// Changes the phase. All changes go through here.
    mutating func enter(_ next: Phase) {
        precondition(
            Self.isLegal(from: phase, to: next),
            "a lane of root \(key.rootQueue) cannot become \(next) when it is \(phase)")
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
