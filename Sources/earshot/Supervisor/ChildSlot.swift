internal import EarshotLoop

/// Slot for one child of the supervisor. A dead child is replaced.
final class ChildSlot {
    enum Role: Hashable {
        case broker
        case worker
        /// Accepts clients on other machines.
        case gateway
        /// Accepts the other nodes of a cluster.
        case nodeGateway
        /// Fetches bodies from the other nodes of a cluster.
        case puller
        /// Accepts HTTP clients of this machine.
        case door

        /// Name with an article, for messages.
        var nameWithArticle: String {
            switch self {
            case .broker: "the broker"
            case .worker: "a worker"
            case .gateway: "the gateway"
            case .nodeGateway: "the node gateway"
            case .puller: "the puller"
            case .door: "the HTTP door"
            }
        }

        /// Name in the list of crash loops.
        var statusName: String {
            switch self {
            case .broker: "broker"
            case .worker: "worker"
            case .gateway: "gateway"
            case .nodeGateway: "node-gateway"
            case .puller: "puller"
            case .door: "http"
            }
        }

        /// Whether it opens sessions for others, each with a proof.
        var isGateway: Bool {
            switch self {
            case .gateway, .nodeGateway, .door: true
            case .broker, .worker, .puller: false
            }
        }

        /// Whether it runs jobs of the broker.
        var isWorker: Bool {
            switch self {
            case .worker, .puller: true
            case .broker, .gateway, .nodeGateway, .door: false
            }
        }
    }

    let role: Role
    var child: ChildProcess?
    var registration: EventLoop.Registration?
    var startTime = LoopTime.readClock()
    /// Number of processes that the kernel had killed for lack of memory when the child started; nil if unknown.
    var oomKillsAtStart: Int?
    var rule = RestartRule()
    /// Time of the first early exit in a row, RFC 3339; nil without one.
    var firstEarlyExitTime: String?
    /// Exit of the previous child; nil for the first child, and if that could not be started.
    var lastExit: ChildProcess.Exit?
    /// Reason why no child can be started at present; nil for none.
    var startFailureReason: String?
    /// Whether the pool shrinks by this slot: its child drains and is not replaced.
    var isRetiring = false
    /// Kills a child that exceeds the drain time.
    var killTimer: TimerID?
    /// Fires after the child has run long enough to count as healthy.
    var healthyRunTimer: TimerID?

    init(_ role: Role) {
        self.role = role
    }
}
