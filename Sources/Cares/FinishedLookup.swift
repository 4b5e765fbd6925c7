/// Completed lookup, as returned by `Resolver.takeFinished()`.
public struct FinishedLookup: Sendable {
    /// Name passed to the resolver.
    public let name: String
    /// Addresses, best first (RFC 6724) and at least one, or the reason for their absence.
    public let result: Result<[ResolvedAddress], LookupFailure>
}
