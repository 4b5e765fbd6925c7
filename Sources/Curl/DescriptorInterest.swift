/// What the owner of a multi handle has to watch a descriptor for, from now on.
///
/// The number may name another socket than a moment ago: libcurl closes one without a word, and opens the next inside
/// the same call. So the owner does not mind that what it forgets is gone, and starts anew where `isNew` says so.
public struct DescriptorInterest: Hashable, Sendable {
    /// The socket, open now.
    public let descriptor: Int32
    /// `EasyHandle.address` of a transfer that the socket is for.
    let owner: UInt
    public let reads: Bool
    public let writes: Bool

    /// Whether a socket was opened under this number since the owner was last told of the number: what it did for the
    /// one before is void. If not, the socket is the one that it was told of, even if it was to forget it meanwhile.
    public let isNew: Bool

    /// Whether there is nothing left to watch it for.
    public var isForgotten: Bool { !reads && !writes }
}
