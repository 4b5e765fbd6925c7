internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Bodies of a run that have not ended, and the sum of the bytes that a later run can continue. The bus keeps those of
/// large bodies; with `--continue` the others go to partial files.
struct ArrivingBodies {
    /// Maximum number of bodies whose bytes can go to partial files: a quarter of the usual limit of descriptors.
    private static let mostBodies = 256

    /// Failures after which a later run may continue the body.
    private static let interruptions: Set = ["deadline", "reset", "stopping", "timeout", "truncated", "worker-lost"]

    /// Number of bytes of each body that the bus keeps.
    private var partBytes: [RequestID: Int] = [:]
    /// Bodies for partial files.
    private var bodies: [RequestID: ArrivingBody] = [:]
    /// Start of the run in seconds since 1970; nil without `--continue`.
    private let start: Int64?
    /// Whether bodies come over the connection, so that bytes in a partial file are not sent again.
    var isPulling = false
    /// Number of bytes that the bus keeps, and of new bytes in partial files.
    private(set) var keptBytes = 0
    /// Number of bodies with these bytes.
    private(set) var keptFiles = 0
    /// Number of bytes that arrived and are lost, because no later run could continue them.
    private(set) var lostBytes = 0

    init(start: Int64?) { self.start = start }

    mutating func progressed(_ progress: Progress) {
        partBytes[progress.request] = progress.isResumable ? progress.received : nil
        guard start != nil else { return }
        if bodies[progress.request] == nil, bodies.count < Self.mostBodies { bodies[progress.request] = ArrivingBody() }
        bodies[progress.request]?.progressed(progress)
    }

    /// Forgets the body of a request that has ended.
    mutating func ended(_ request: RequestID) {
        if !partBytes.isEmpty { partBytes[request] = nil }
        if !bodies.isEmpty { bodies[request] = nil }
    }

    /// Keeps the bytes of a request whose transfer has failed.
    mutating func failed(_ request: RequestID, _ item: OutputItem, _ code: String, in destination: inout Destination) {
        if Self.interruptions.contains(code) { keepPart(request, item, in: &destination) }
    }

    /// Keeps the bytes of a request that ends without its body.
    mutating func keepPart(_ request: RequestID, _ item: OutputItem, in destination: inout Destination) {
        let body = bodies.removeValue(forKey: request)
        if !isPulling || start == nil, let bytes = partBytes.removeValue(forKey: request) {
            keptBytes += bytes
            keptFiles += 1
        } else if let body, let start {
            if (try? destination.keepPart(body, of: item, since: start)) == true {
                keptBytes += body.received
                keptFiles += 1
            } else {
                lostBytes += body.received
            }
        }
    }
}

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
