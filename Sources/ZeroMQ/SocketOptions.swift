/// Options set before a socket is bound or connected, instead of libzmq's defaults.
public struct SocketOptions: Equatable, Sendable {
    /// ZMTP heartbeats, for connections whose loss the kernel does not report.
    public struct Heartbeat: Equatable, Sendable {
        /// Milliseconds between two pings.
        public var intervalMilliseconds: Int32
        /// Milliseconds without a reply to a PING after which the connection is dropped.
        public var timeoutMilliseconds: Int32

        public init(intervalMilliseconds: Int32, timeoutMilliseconds: Int32) {
            self.intervalMilliseconds = intervalMilliseconds
            self.timeoutMilliseconds = timeoutMilliseconds
        }
    }

    /// Maximum number of messages queued for one peer; 0 for no limit.
    public var sendHighWaterMark: Int32 = 1000
    /// Maximum number of messages queued from one peer before reading stops; 0 for no limit.
    public var receiveHighWaterMark: Int32 = 1000
    /// Maximum length of a received frame in bytes. A larger one closes its connection, and messages queued behind it
    /// are lost. It limits a frame, not a message.
    public var maximumFrameBytes: Int64 = 64 << 20
    /// Whether messages are queued only for established connections. Without one, a send returns `.wouldBlock`.
    public var isImmediate = true
    /// First and maximum reconnection interval in milliseconds, with exponential back-off. Peers that start together
    /// may need a millisecond or two to bind.
    public var reconnectMilliseconds: ClosedRange<Int32> = 1...100
    /// Heartbeats; nil on ipc, where the kernel reports a peer's end and a stopped peer is not dead.
    public var heartbeat: Heartbeat?
    /// Timeout of the ZMTP handshake in milliseconds.
    public var handshakeMilliseconds: Int32 = 10_000
    /// Milliseconds for sending queued messages after a close, while the context exists; 0 drops them.
    public var lingerMilliseconds: Int32 = 0
    /// Maximum number of connections waiting for accept.
    public var backlog: Int32 = 1024
    /// Whether a router reports missing or full peers instead of dropping messages to them. Routers only.
    public var isMandatory = true

    public init() {}
}
