/// Change of the events for which the owner of a resolver watches a descriptor.
///
/// The descriptor number may name a new socket: c-ares may close a socket and open another one within one call. The
/// owner must therefore add a descriptor that it cannot modify, and modify one that it cannot add. It must also
/// tolerate that a forgotten one is already closed.
public struct ResolverInterest: Hashable, Sendable {
    /// Open socket.
    public let descriptor: Int32
    public let reads: Bool
    public let writes: Bool

    /// Whether the owner stops watching the descriptor.
    public var isForgotten: Bool { !reads && !writes }
}
