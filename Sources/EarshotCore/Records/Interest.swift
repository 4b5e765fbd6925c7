internal import EarshotHTTP
package import EarshotWire

/// Stake of one request in a flight, and later the delivery state of its terminal.
///
/// Numbers are those of records in the core's slabs.
package struct Interest: Generational {
    /// State machine:
    ///
    /// ```
    /// open → delivering, held                    (the flight ended; held without a live subscriber)
    /// held → delivering                          (a subscriber came, or its time is over)
    /// ```
    ///
    /// A durable request:
    ///
    /// ```
    /// open → entering, resting                   (accepted; restored with its outcome)
    /// entering → open, recording, resting        (on disk; refused; the failure was not deleted)
    /// open → recording → delivering, held, resting
    /// resting → recording → delivering, entering (its outcome was read; RETRY)
    /// delivering → recording, resting            (no client acknowledged)
    /// ```
    ///
    /// A removed or orphaned request becomes `delivering` in any phase. A record is freed when its last delivery is settled.
    package enum Phase: UInt8, CaseIterable {
        /// Waits for the outcome of its flight.
        case open
        /// Has its outcome, and waits for a listener.
        case held
        /// Its terminal waits for delivery or acknowledgement.
        case delivering
        /// Is being written to disk, or its failure is being deleted there; not accepted yet.
        case entering
        /// Its outcome is being written to disk.
        case recording
        /// Its outcome is on disk only.
        case resting
    }

    /// Options that few requests set.
    package struct Extras {
        var digest: String?
        var maxBytes: Int?
        var limitRate: Int?
        var progressMilliseconds: Int?
        var lastProgress: Tick?
        /// Time of the timer for the next PROGRESS; nil without one.
        var progressTimer: Tick?
        /// Whether PROGRESS names the file in which the body grows.
        var streams: Bool
        /// Demanded form of the body.
        var delivery: BodyDelivery
        /// Maximum time of a wait for a cool-down; nil for no limit.
        var waitMilliseconds: Int?
        /// Begin of its latest wait for a cool-down since its last attempt.
        var waitStart: Tick?
        /// Conditions that turn a response into a 304 for this request alone.
        var conditions: RequestConditions?
        /// HTTP fields of the request, if they differ from those of its flight.
        var fields: HeaderFields?
        /// Redirects that were followed, for the terminal, once the request has its outcome.
        var redirects: [Terminal.Redirect] = []

        /// Default time between two PROGRESS messages of a streaming request: prompt, and few beside the body's own
        /// chunks.
        private static let streamMilliseconds = 100

        /// Extras of a request whose options have their defaults.
        init() {
            streams = false
            delivery = .auto
        }

        /// Latest end of its wait for a cool-down; nil without a limit, and if it has waited only for an earlier one.
        func waitEnd(in coolDown: CoolDown) -> Tick? {
            guard let waitMilliseconds, let waitStart, waitStart >= coolDown.since else { return nil }
            return waitStart.advanced(byMilliseconds: waitMilliseconds)
        }

        /// Returns nil if all options have their defaults.
        init?(_ options: borrowing Fetch.Options) {
            guard
                options.digest != nil || options.maxBytes != nil
                    || options.limitRate != nil || options.progressMilliseconds != nil || options.streams
                    || options.delivery != .auto || options.waitMilliseconds != nil
            else { return nil }
            digest = options.digest
            maxBytes = options.maxBytes
            limitRate = options.limitRate
            streams = options.streams
            delivery = options.delivery
            waitMilliseconds = options.waitMilliseconds
            progressMilliseconds = options.progressMilliseconds ?? (streams ? Self.streamMilliseconds : nil)
        }
    }

    package let request: RequestID
    /// Time at which the program made the request, possibly to an earlier broker, or repeated it by RETRY.
    package var requestedAt: Tick
    /// Hash of the request's content. Distinguishes a repeated request from a different one under the same ID.
    let fingerprint: UInt64
    /// Distinguishes this record from earlier ones in the same place, and the request from itself before a RETRY.
    var generation: UInt64
    package let handler: Handle<HandlerEntry>
    /// Client that owns the request; nil if the request belongs to its handler, or if the owner's own delivery is
    /// settled.
    @OptionalHandle package var owner: Handle<ClientSession>?
    @OptionalHandle var flight: Handle<Flight>? = nil
    @OptionalHandle package var outcome: Handle<Outcome>? = nil
    @OptionalHandle var extras: Handle<Interest.Extras>? = nil
    /// Number of deliveries neither acknowledged nor lost.
    var outstanding: Int32 = 0
    package var priority: PriorityClass
    package private(set) var phase = Phase.open
    let isWarm: Bool
    /// Whether it replaced all earlier requests of its handler.
    let isReplacement: Bool
    /// Whether it ends with the attempt that it waits for, also if others try again.
    let isTriedOnce: Bool
    /// Whether it joined a flight that another request began.
    var isShared = false
    /// Whether its ID is still taken.
    package var isListed = true

    /// Changes the phase. All changes go through here.
    mutating func enter(_ next: Phase) {
        precondition(
            Self.isLegal(from: phase, to: next), "request \(request) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.open, .entering), (.open, .recording), (.open, .held), (.open, .resting): true
        case (.entering, .open), (.entering, .recording), (.entering, .resting): true
        case (.recording, .held), (.recording, .resting), (.recording, .entering): true
        case (.resting, .recording): true
        case (.delivering, .recording), (.delivering, .resting): true
        case (.open, .delivering), (.held, .delivering), (.entering, .delivering): true
        case (.recording, .delivering), (.resting, .delivering): true
        case (.open, _), (.held, _), (.entering, _), (.recording, _), (.resting, _), (.delivering, _): false
        }
    }
}
