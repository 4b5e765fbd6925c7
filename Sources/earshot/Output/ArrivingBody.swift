internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Body of a request with `--continue` while it arrives. Its spool file stays open, so that its bytes can be kept if it
/// does not end.
final class ArrivingBody {
    private var generation: Generation?
    /// Descriptor of the growing file; -1 without one.
    private(set) var descriptor: Int32 = -1
    /// Number of bytes that have arrived.
    private(set) var received = 0
    /// Number of bytes of the complete body; nil if the server did not announce it.
    private(set) var total: Int?
    /// Status of the response; nil if its head is unknown.
    private(set) var status: Int?
    private(set) var fields = HeaderFields()

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Takes note of a report. Skips a missing file, because a later report has its new name.
    func progressed(_ progress: Progress) {
        guard let path = progress.file, let generation = progress.generation else { return }
        if generation != self.generation || descriptor < 0 {
            if descriptor >= 0 { close(descriptor) }
            self.generation = generation
            descriptor = BodyFile.open(path)
        }
        received = descriptor >= 0 ? progress.received : 0
        total = progress.total
        status = progress.status
        if status != nil, fields.bytes != progress.httpFields { fields = HeaderFields(lines: progress.httpFields) }
    }
}
