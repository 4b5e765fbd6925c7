/// Facts at the end of a pass.
public struct PassEnd: Equatable, Sendable {
    /// Time at which the core needs the next pass; nil for never.
    public let nextTimer: Tick?
    /// Whether much memory can be returned to the system: a large removal has ended, or a table is mostly empty.
    /// `releaseRoom` releases that of the tables.
    public let canShrink: Bool
    /// Number of workers of http and https that accept jobs.
    public var acceptingWorkers = 0
}

extension BrokerCore {
    /// Ends a pass, whose actions the shell has carried out.
    public mutating func endPass() -> PassEnd {
        let hasRemoved = wasRemoving && !isRemoving
        wasRemoving = isRemoving
        return PassEnd(nextTimer: nextTimer, canShrink: hasRemoved || canShrink, acceptingWorkers: acceptingWorkers)
    }
}
