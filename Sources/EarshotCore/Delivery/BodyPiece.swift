public import EarshotWire

/// Bytes that the core asks the shell to read and send.
public struct BodyPiece: Equatable, Sendable {
    let read: PullWindow.Read
    /// Head of the DATA.
    public let data: BodyData
    /// Name of the file in the spool.
    public let file: String
    /// Maximum number of bytes, at least 1.
    public let length: Int
}
