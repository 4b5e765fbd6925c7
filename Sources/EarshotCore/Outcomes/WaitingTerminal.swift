internal import EarshotHTTP

/// Record of a terminal spilled to the shell's file. It is small, because a slow client may have a million of them.
struct WaitingTerminal {
    let request: RequestMark
    let handler: Handle<HandlerEntry>
    /// Reference count: deliveries neither acknowledged nor lost.
    var holders: Int32 = 0
    /// Approximate bytes in the file; 0 for a bare failure, which this record contains completely.
    let bytes: UInt32
    /// Interest of the request while its record exists.
    var interest: Handle<Interest>?
    /// Nil for a result.
    let failure: FailureCode?
    /// Whether its body is a spool file.
    let isFiled: Bool

    var isInFile: Bool { bytes > 0 }
}

/// Spool file named by a spilled terminal.
struct WaitingBody {
    let file: String
    let bytes: Int
}
