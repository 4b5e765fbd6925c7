internal import EarshotHTTP

/// What memory keeps of a terminal that waits outside of it, in the shell's file: as little as can be, since a client
/// that reads nothing may miss very many.
struct WaitingTerminal {
    let request: RequestMark
    let handler: Int32
    /// The request's record, as long as it is needed for more than this; -1 for none.
    var interest: Int32
    /// Deliveries of it, neither acknowledged nor lost.
    var holders: Int32 = 0
    /// About what it takes in the file; 0 for one that is not there, since all it says is here.
    let bytes: UInt32
    /// What it says; nil for a result.
    let failure: FailureCode?
    /// Whether its body is a spool file, which `waitingFiles` names.
    let isFiled: Bool

    var isInFile: Bool { bytes > 0 }
}

/// The spool file that a terminal which waits names.
struct WaitingBody {
    let file: String
    let bytes: Int
}
