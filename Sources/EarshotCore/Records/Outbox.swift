internal import HeapModule

/// Messages and other actions for the shell, timers, and spool files to delete.
struct Outbox {
    /// Actions in the order in which the shell carries them out.
    var actions: [Action] = []
    /// Spool files that have lost their last reference, and whose removal is no action yet.
    var releasedFiles: [String] = []
    var timers = Heap<Timer>()

    mutating func append(_ action: Action) { actions.append(action) }
}
