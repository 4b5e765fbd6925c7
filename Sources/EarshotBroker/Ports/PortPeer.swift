internal import EarshotLoop
internal import ZMTP

/// One connection of a `StreamPort`.
final class PortPeer {
    let number: UInt64
    let stream: MessageStream
    let pid: Int32
    let uid: UInt32
    /// Whether its user is not permitted. It gets one answer, and its messages are discarded.
    let isRefused: Bool
    /// Whether its process is a gateway.
    let isGateway: Bool
    /// Whether the port has answered its first message.
    var isAnswered = false
    /// Whether it has sent a message and its connection was reported.
    var isKnown = false
    /// Whether it is queued in `ready`.
    var isReady = false
    /// Whether none of its messages is read until ``StreamPort/releaseHeld(unless:)``.
    var isHeld = false
    /// Whether it is queued in `dirty`, with unsent output.
    var isDirty = false
    /// Whether its connection has a send buffer for parts of bodies.
    var hasLargeBuffer = false

    init(
        _ number: UInt64, _ stream: MessageStream, _ credentials: UnixSocket.Credentials, isRefused: Bool,
        isGateway: Bool
    ) {
        self.number = number
        self.stream = stream
        pid = credentials.pid
        uid = credentials.uid
        self.isRefused = isRefused
        self.isGateway = isGateway
    }
}
