internal import EarshotLoop

/// A place for a child of the supervisor, filled again when the child dies.
final class Post {
    enum Role: Equatable {
        case broker
        case worker
    }

    let role: Role
    var child: ChildProcess?
    var registration: EventLoop.Registration?
    var started = LoopTime.read()
    var delay = RestartDelay()
    /// Whether it is given up: its child finishes what it runs, and gets no successor.
    var isLeaving = false
    /// Ends a child that takes too long to leave.
    var timer: TimerID?

    init(_ role: Role) {
        self.role = role
    }
}
