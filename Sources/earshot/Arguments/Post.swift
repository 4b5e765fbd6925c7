internal import EarshotLoop

/// A place for a child of the supervisor, filled again when the child dies.
final class Post {
    enum Role: Equatable {
        case broker
        case worker

        /// With an article, for a sentence.
        var name: String {
            switch self {
            case .broker: "the broker"
            case .worker: "a worker"
            }
        }
    }

    let role: Role
    var child: ChildProcess?
    var registration: EventLoop.Registration?
    var started = LoopTime.read()
    var rule = RestartRule()
    /// The first of the quick deaths in a row, RFC 3339; nil while there is none.
    var dyingSince: String?
    /// How its last child ended; nil for a first one that lives, or could not be started.
    var lastExit: ChildProcess.Exit?
    /// Whether it is given up: its child finishes what it runs, and gets no successor.
    var isLeaving = false
    /// Ends a child that takes too long to leave.
    var timer: TimerID?
    /// Tells that a child has lived for long enough.
    var goodLife: TimerID?

    init(_ role: Role) {
        self.role = role
    }
}
