internal import EarshotWire

/// Bodies of a run that have not ended, and the sum of the bytes that a later run can continue. The bus keeps those of
/// large bodies; with `--continue` the others go to partial files.
struct ArrivingBodies {
    /// Maximum number of bodies whose bytes can go to partial files: a quarter of the usual limit of descriptors.
    private static let most = 256

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
        if bodies[progress.request] == nil, bodies.count < Self.most { bodies[progress.request] = ArrivingBody() }
        bodies[progress.request]?.progressed(progress)
    }

    /// Forgets the body of a request that has ended.
    mutating func ended(_ request: RequestID) {
        if !partBytes.isEmpty { partBytes[request] = nil }
        if !bodies.isEmpty { bodies[request] = nil }
    }

    /// Keeps the bytes of a request whose transfer has failed.
    mutating func failed(_ request: RequestID, _ item: OutputItem, _ code: String, in destination: inout Destination) {
        if Self.interruptions.contains(code) { keep(request, item, in: &destination) }
    }

    /// Keeps the bytes of a request that ends without its body.
    mutating func keep(_ request: RequestID, _ item: OutputItem, in destination: inout Destination) {
        let body = bodies.removeValue(forKey: request)
        if !isPulling || start == nil, let bytes = partBytes.removeValue(forKey: request) {
            keptBytes += bytes
            keptFiles += 1
        } else if let body, let start {
            if (try? destination.keep(body, of: item, since: start)) == true {
                keptBytes += body.received
                keptFiles += 1
            } else {
                lostBytes += body.received
            }
        }
    }
}
