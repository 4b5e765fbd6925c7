internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// The failure with which the worker ends a job.
struct Refusal: Error, Equatable {
    let code: FailureCode
    /// Explanation beyond the code, without peer-supplied text.
    let detail: String
    /// Pause before another attempt, as a proxy requested it; nil for none.
    var retryAfter: RetryAfter?

    init(_ code: FailureCode, _ detail: String? = nil) {
        self.code = code
        self.detail = detail ?? code.sentence
    }

    init(body fault: IncomingBody.Fault) {
        switch fault {
        case .tooLargeForUse, .decoding(.tooCompressed): self.init(.tooCompressed)
        case .tooLarge: self.init(.tooLarge)
        case .spoolFailed(let error): self.init(spool: error)
        case .decoding(.damaged): self.init(.encodingError)
        case .decoding(.empty): self.init(.encodingError, "Too many bytes of the body decode to nothing.")
        }
    }

    init(spool error: SystemError) {
        switch error.number {
        case EMFILE, ENFILE:
            // A retry may succeed once other transfers have closed descriptors, as after a connection without a
            // descriptor.
            self.init(
                .connectFailed, "The worker ran out of file descriptors; raise their limit or lower the setting slots.")
        case EFBIG:
            self.init(
                .spoolFull,
                "The body is larger than the file size limit of the bus permits; raise the limit (ulimit -f, LimitFSIZE=)."
            )
        case ENOSPC where error == SpoolFolder.reserveReached:
            self.init(
                .spoolFull,
                "The disk of the spool has only the setting spool-free left; free disk space, or lower spool-free.")
        case ENOSPC, EDQUOT: self.init(.spoolFull)
        default: self.init(.spoolFailed, error.description)
        }
    }

    init(head fault: ResponseHead.Fault) {
        switch fault {
        case .malformed: self.init(.protocolError, "A line of the response's header is malformed.")
        case .tooLong: self.init(.protocolError, "The header of the response is too long.")
        }
    }
}
