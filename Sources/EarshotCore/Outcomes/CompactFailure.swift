internal import EarshotHTTP
internal import EarshotWire

/// Failure without a response that waits for room in the windows of its receivers. It is small, because one removal may
/// leave a client half a million of them.
///
/// ```
///            addCompact          detachCompact
///  (absent) ────────→ attached ─────────→ detached    (the request's record is freed)
///      ↑  releaseCompact    │                   │
///      └─────────────────┴───────────────────┘
/// ```
struct CompactFailure {
    /// Text that failures share as one outcome.
    struct Text: Hashable {
        let failure: FailureCode
        let detail: String?
        let attempts: Int
        let retryAfterSeconds: Int?
    }

    let request: RequestID
    let handler: Handle<HandlerEntry>
    /// Outcome of all failures with the same text.
    let outcome: Handle<Outcome>
    /// Reference count: deliveries neither acknowledged nor lost.
    var holders: Int32 = 0
    /// Interest of the request while its record exists.
    @OptionalHandle var interest: Handle<Interest>? = nil
}
