/// Number of flights in each phase, counted incrementally.
package struct FlightCounts: Equatable {
    package private(set) var asking = 0
    package private(set) var queued = 0
    package private(set) var claiming = 0
    package private(set) var running = 0
    package private(set) var backingOff = 0
    package private(set) var following = 0
    private(set) var ended = 0

    subscript(phase: Flight.Phase) -> Int {
        get {
            switch phase {
            case .asking: asking
            case .queued: queued
            case .claiming: claiming
            case .running: running
            case .backingOff: backingOff
            case .following: following
            case .ended: ended
            }
        }
        set {
            switch phase {
            case .asking: asking = newValue
            case .queued: queued = newValue
            case .claiming: claiming = newValue
            case .running: running = newValue
            case .backingOff: backingOff = newValue
            case .following: following = newValue
            case .ended: ended = newValue
            }
        }
    }
}
