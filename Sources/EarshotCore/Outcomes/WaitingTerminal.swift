internal import EarshotHTTP

/// Record of a terminal in the shell's file: as small as possible, since a client that reads nothing may miss very many.
struct WaitingTerminal {
    let request: RequestMark
    let handler: Int32
    /// Deliveries neither acknowledged nor lost.
    var holders: Int32 = 0
    /// Approximate bytes in the file; 0 for a terminal that is not there, since this record says all of it.
    let bytes: UInt32
    /// Interest of the request while its record exists.
    var interest: Int32?
    /// Nil for a result.
    let failure: FailureCode?
    /// Whether its body is a spool file.
    let isFiled: Bool

    var isInFile: Bool { bytes > 0 }
}

/// Spool file that a waiting terminal names.
struct WaitingBody {
    let file: String
    let bytes: Int
}
