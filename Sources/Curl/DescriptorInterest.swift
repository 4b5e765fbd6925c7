/// Change of the events for which the owner of a multi handle watches a descriptor.
///
/// The descriptor number may name a new socket: libcurl may close a socket without notice and open another one within
/// the same call. The owner must therefore tolerate that a forgotten descriptor is already closed, and register again
/// where `isNew` is true.
public struct DescriptorInterest: Hashable, Sendable {
    /// Open socket.
    public let descriptor: Int32
    /// `EasyHandle.address` of a transfer that uses the socket.
    let owner: UInt
    public let reads: Bool
    public let writes: Bool

    /// Whether a socket was opened under this number since the last report of the number, so that earlier registrations
    /// are void. Otherwise it is the same socket, even if the owner has forgotten it meanwhile.
    public let isNew: Bool

    /// Whether the owner stops watching the descriptor.
    public var isForgotten: Bool { !reads && !writes }
}
