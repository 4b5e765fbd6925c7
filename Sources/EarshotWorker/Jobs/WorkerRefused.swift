/// Refusal of the broker, which accepts only workers that its supervisor started.
public struct WorkerRefused: Error, CustomStringConvertible {
    public var description: String {
        "the broker takes only workers that its supervisor started: raise `workers` with `earshot set`, or run a broker of its"
            + " own with `earshot broker`"
    }
}
