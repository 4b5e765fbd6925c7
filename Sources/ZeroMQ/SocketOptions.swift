/// What a socket is told before it is bound or connected. Nothing is left to libzmq's defaults.
public struct SocketOptions: Equatable, Sendable {
    /// ZMTP pings, for connections whose end the kernel does not report.
    public struct Heartbeat: Equatable, Sendable {
        /// Milliseconds between two pings.
        public var intervalMilliseconds: Int32
        /// Milliseconds of silence after a ping until the connection is dropped.
        public var timeoutMilliseconds: Int32

        public init(intervalMilliseconds: Int32, timeoutMilliseconds: Int32) {
            self.intervalMilliseconds = intervalMilliseconds
            self.timeoutMilliseconds = timeoutMilliseconds
        }
    }

    /// Messages queued to one peer before it counts as full; 0 is without bound.
    public var sendHighWaterMark: Int32 = 1000
    /// Messages queued from one peer before it is no longer read; 0 is without bound.
    public var receiveHighWaterMark: Int32 = 1000
    /// The largest frame a peer may send. A larger one closes its connection, and what it had queued behind is lost.
    /// It bounds a frame, not a message.
    public var maximumFrameBytes: Int64 = 64 << 20
    /// Whether messages are queued only to connections that stand: without one a send then answers `.wouldBlock`.
    public var isImmediate = true
    /// Milliseconds until the first new try after a connection broke or was refused, and the most after many: each
    /// waits twice as long as the one before. What begins together has not bound its endpoint for a millisecond or two.
    public var reconnectMilliseconds: ClosedRange<Int32> = 1...100
    /// Pings; none on ipc, where the kernel tells of a peer's end and a stopped peer is not a dead one.
    public var heartbeat: Heartbeat?
    /// Milliseconds a peer has for the ZMTP handshake.
    public var handshakeMilliseconds: Int32 = 10_000
    /// Milliseconds that messages sent before a close may take to leave, within the life of the context; 0 drops them.
    public var lingerMilliseconds: Int32 = 0
    /// Connections that may wait to be accepted.
    public var backlog: Int32 = 1024
    /// Whether a router reports peers that are gone or full instead of dropping what is sent to them. Routers only.
    public var isMandatory = true

    public init() {}
}
