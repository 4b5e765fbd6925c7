/// The broker gives work only to its supervisor's children, and this process is none of them.
public struct WorkerRefused: Error, CustomStringConvertible {
    public var description: String {
        "the broker takes only workers that its supervisor started: raise `workers` with `earshot set`, or run a broker of its"
            + " own with `earshot broker`"
    }
}
