internal import EarshotWire

/// One request's stake in a flight, and then its terminal's way to the subscribers.
///
/// Numbers name records in the core's slabs; -1 is none.
struct Interest {
    /// `open -> held -> delivering`, or `open -> delivering`; a record whose last delivery is settled is freed.
    ///
    /// Of a durable one `entering -> open -> recording -> (resting <-> delivering | held)`, and from `delivering` back
    /// when nobody acknowledged.
    enum Phase: UInt8 {
        /// In a flight, waiting for what becomes of it.
        case open
        /// It has its outcome, but nobody listens yet.
        case held
        /// Its terminal waits for, or is on its way to, those who listened.
        case delivering
        /// It is being written to the disk, and not accepted yet.
        case entering
        /// Its outcome is being written to the disk.
        case recording
        /// Its outcome is on the disk alone.
        case resting
    }

    /// Values few requests give.
    struct Extras {
        var tag: String?
        var digest: String?
        var maxBytes: Int?
        var progressMilliseconds: Int?
        var lastProgress: Tick?
        /// Whether progress tells where the body can be read.
        var streams: Bool
        /// In which form the body comes.
        var delivery: BodyDelivery

        /// Whether a body that is there in both forms goes to it as a file: who reads one while it grows goes on
        /// reading.
        var prefersFile: Bool { delivery == .file || streams && delivery == .auto }

        /// Between two PROGRESS of one that streams and says nothing of it: soon, and few beside what a body brings.
        private static let streamMilliseconds = 100

        /// Nil when all of them are the usual ones.
        init?(_ options: Fetch.Options) {
            guard
                options.tag != nil || options.digest != nil || options.maxBytes != nil
                    || options.progressMilliseconds != nil || options.streams || options.delivery != .auto
            else { return nil }
            tag = options.tag
            digest = options.digest
            maxBytes = options.maxBytes
            streams = options.streams
            delivery = options.delivery
            progressMilliseconds = options.progressMilliseconds ?? (streams ? Self.streamMilliseconds : nil)
        }
    }

    let request: RequestID
    /// When its program made it, be it to an earlier broker.
    let askedAt: Tick
    /// Of what was asked: tells the same request asked again from another one under the same ID.
    let fingerprint: UInt64
    /// Tells this record from earlier ones under the same number, for timers.
    let serial: UInt64
    let handler: Int32
    /// The client that asked; -1 if the request belongs to its handler, or its owner's own delivery is settled.
    var owner: Int32
    var flight: Int32 = -1
    var outcome: Int32 = -1
    var extras: Int32 = -1
    /// Deliveries neither acknowledged nor lost.
    var outstanding: Int32 = 0
    var priority: PriorityClass
    var phase = Phase.open
    let isWarm: Bool
    /// Whether it replaced all that its handler had wanted.
    let isFresh: Bool
    /// Whether it has a use for a file that is nobody else's.
    let takes: Bool
    /// Whether it joined a flight another request began.
    var isShared = false
    /// Whether its ID is still taken.
    var isListed = true
    /// Whether the file that its terminal names was given away to the one client that gets it.
    var isGiven = false
}
