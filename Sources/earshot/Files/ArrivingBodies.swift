internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Bodies of a run that have not ended, and the sum of the bytes that a later run can continue. The bus keeps those of
/// large bodies; with `--continue` the others go to partial files.
struct ArrivingBodies {
    /// Maximum number of bodies whose bytes can go to partial files: a quarter of the usual limit of descriptors.
    private static let maximumBodies = 256

    /// Failures after which a later run may continue the body.
    private static let resumableFailureCodes: Set = [
        "deadline", "reset", "stopping", "timeout", "truncated", "worker-lost",
    ]

    /// Number of bytes of each body that the bus keeps.
    private var bytesKeptByBus: [RequestID: Int] = [:]
    /// Bodies for partial files.
    private var bodies: [RequestID: ArrivingBody] = [:]
    /// Start of the run in seconds since 1970; nil without `--continue`.
    private let runStartSeconds: Int64?
    /// Whether bodies come over the connection, so that bytes in a partial file are not sent again.
    var isPulling = false
    /// Number of bytes that the bus keeps, and of new bytes in partial files.
    private(set) var resumableBytes = 0
    /// Number of bodies with these bytes.
    private(set) var resumableFileCount = 0
    /// Number of bytes that arrived and are lost, because no later run could continue them.
    private(set) var lostBytes = 0

    init(start: Int64?) { self.runStartSeconds = start }

    mutating func progressed(_ progress: Progress) {
        bytesKeptByBus[progress.request] = progress.isResumable ? progress.receivedBytes : nil
        guard runStartSeconds != nil else { return }
        if bodies[progress.request] == nil, bodies.count < Self.maximumBodies {
            bodies[progress.request] = ArrivingBody()
        }
        bodies[progress.request]?.progressed(progress)
    }

    /// Forgets the body of a request that has ended.
    mutating func requestEnded(_ request: RequestID) {
        if !bytesKeptByBus.isEmpty { bytesKeptByBus[request] = nil }
        if !bodies.isEmpty { bodies[request] = nil }
    }

    /// Keeps the bytes of a request whose transfer has failed.
    mutating func transferFailed(
        _ request: RequestID, _ item: OutputItem, _ code: String, in destination: inout Destination
    ) {
        if Self.resumableFailureCodes.contains(code) { keepPartialBody(request, item, in: &destination) }
    }

    /// Keeps the bytes of a request that ends without its body.
    mutating func keepPartialBody(_ request: RequestID, _ item: OutputItem, in destination: inout Destination) {
        let body = bodies.removeValue(forKey: request)
        if !isPulling || runStartSeconds == nil, let bytes = bytesKeptByBus.removeValue(forKey: request) {
            resumableBytes += bytes
            resumableFileCount += 1
        } else if let body, let runStartSeconds {
            if (try? destination.keepPartialBody(body, of: item, since: runStartSeconds)) == true {
                resumableBytes += body.receivedBytes
                resumableFileCount += 1
            } else {
                lostBytes += body.receivedBytes
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
    private(set) var receivedBytes = 0
    /// Number of bytes of the complete body; nil if the server did not announce it.
    private(set) var totalBytes: Int?
    /// Status of the response; nil if its head is unknown.
    private(set) var status: Int?
    private(set) var fields = HeaderFields()

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Records a report. Skips a missing file, because a later report has its new name.
    func progressed(_ progress: Progress) {
        guard let path = progress.filePath, let generation = progress.generation else { return }
        if generation != self.generation || descriptor < 0 {
            if descriptor >= 0 { close(descriptor) }
            self.generation = generation
            descriptor = BodyFile.open(path)
        }
        receivedBytes = descriptor >= 0 ? progress.receivedBytes : 0
        totalBytes = progress.totalBytes
        status = progress.status
        if status != nil, fields.bytes != progress.httpFields { fields = HeaderFields(lines: progress.httpFields) }
    }
}
