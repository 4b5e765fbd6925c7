/// What the owner of a multi handle has to watch a descriptor for, from now on.
///
/// The number may name another socket than a moment ago: libcurl closes one and opens the next inside one call. So the
/// owner adds where it cannot modify, modifies where it cannot add, and does not mind that what it forgets is gone.
public struct DescriptorInterest: Hashable, Sendable {
    /// The socket, open now.
    public let descriptor: Int32
    public let reads: Bool
    public let writes: Bool

    /// Whether there is nothing left to watch it for.
    public var isForgotten: Bool { !reads && !writes }
}
