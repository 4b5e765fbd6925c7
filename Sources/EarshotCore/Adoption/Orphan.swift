internal import EarshotWire

/// What a worker fetched for an earlier broker and nobody has asked for of this one.
enum Orphan {
    /// It goes on: a lease of that worker.
    case running(worker: Int32, AttemptID)
    /// It came to its end, with an answer whose URL is to be filled in.
    case answered(Outcome.Response)

    func isHeld(by worker: Int32, as attempt: AttemptID) -> Bool {
        guard case .running(worker, attempt) = self else { return false }
        return true
    }
}
