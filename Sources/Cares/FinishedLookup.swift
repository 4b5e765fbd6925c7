/// A lookup that ended, as `Resolver.takeFinished()` hands it over.
public struct FinishedLookup: Sendable {
    /// The name as it was asked.
    public let name: String
    /// The addresses, best first (RFC 6724) and at least one, or why there are none.
    public let result: Result<[ResolvedAddress], LookupFailure>
}
