internal import EarshotWire

/// Bodies of a run with `--continue` that have not ended, and the sum of the bytes that the run keeps of them.
struct ArrivingBodies {
    /// Maximum number of bodies whose bytes can be kept: a quarter of the usual limit of descriptors.
    private static let most = 256

    /// Failures after which a later run may continue the body.
    private static let interruptions: Set = ["deadline", "reset", "stopping", "timeout", "truncated", "worker-lost"]

    private var bodies: [RequestID: ArrivingBody] = [:]
    /// Start of the run in seconds since 1970.
    private let start: Int64
    /// Number of new bytes in partial files.
    private(set) var keptBytes = 0
    /// Number of bytes that arrived and are lost, because no later run could continue them.
    private(set) var lostBytes = 0

    init(start: Int64) { self.start = start }

    mutating func progressed(_ progress: Progress) {
        if bodies[progress.request] == nil, bodies.count < Self.most { bodies[progress.request] = ArrivingBody() }
        bodies[progress.request]?.progressed(progress)
    }

    /// Forgets the body of a request that has ended.
    mutating func ended(_ request: RequestID) { bodies[request] = nil }

    /// Keeps the bytes of a request whose transfer has failed.
    mutating func failed(_ request: RequestID, _ item: OutputItem, _ code: String, in destination: inout Destination) {
        if Self.interruptions.contains(code) { keep(request, item, in: &destination) }
    }

    /// Keeps the bytes of a request that ends without its body.
    mutating func keep(_ request: RequestID, _ item: OutputItem, in destination: inout Destination) {
        guard let body = bodies.removeValue(forKey: request) else { return }
        if (try? destination.keep(body, of: item, since: start)) == true {
            keptBytes += body.received
        } else {
            lostBytes += body.received
        }
    }
}
