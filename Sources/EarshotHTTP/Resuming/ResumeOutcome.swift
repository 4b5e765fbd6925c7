/// Result of requesting the rest of a body.
public enum ResumeOutcome: Hashable, Sendable {
    /// Append the body at offset `from`, the end of the stored bytes; it ends before `to`. If `total` is known and
    /// larger, request the rest again.
    case append(from: Int64, to: Int64, total: Int64?)
    /// The body is complete from its first byte: discard the stored bytes.
    case startOver
    /// The stored bytes are complete; discard the response's body.
    case alreadyWhole
    /// The body belongs to another representation or position: discard it and the stored bytes, and request the whole.
    case mismatch
    /// The response is a redirect or an error: handle it as if nothing were stored. The stored bytes remain valid.
    case unrelated
}
