internal import EarshotHTTP
package import EarshotWire

/// Stake of one request in a flight, and later the delivery state of its terminal.
///
/// Its handles refer to records in the core's slabs.
package struct Interest: Generational {
    /// State machine:
    ///
    /// ```
    /// open → delivering              (the flight ended)
    /// open → awaitingSubscriber        (the flight ended, and no live client is subscribed)
    /// awaitingSubscriber → delivering  (a client subscribed, or the grace period is over)
    /// ```
    ///
    /// A durable request:
    ///
    /// ```
    /// open → awaitingDurableAcceptance                                 (received)
    /// open → outcomeOnlyOnDisk                                         (restored with its outcome)
    /// open → writingOutcome                                            (the flight ended)
    /// awaitingDurableAcceptance → open                                 (on disk)
    /// awaitingDurableAcceptance → writingOutcome                       (refused)
    /// awaitingDurableAcceptance → outcomeOnlyOnDisk                    (the failure was not deleted)
    /// writingOutcome → delivering, awaitingSubscriber, outcomeOnlyOnDisk (the write has ended)
    /// outcomeOnlyOnDisk → writingOutcome → delivering                  (its outcome was read)
    /// outcomeOnlyOnDisk → writingOutcome → awaitingDurableAcceptance   (RETRY)
    /// delivering → writingOutcome, outcomeOnlyOnDisk                   (no client acknowledged)
    /// ```
    ///
    /// A removed or orphaned request becomes `delivering` in any phase. A record is freed when its last delivery has
    /// ended.
    package enum Phase: UInt8, CaseIterable {
        /// Waits for the outcome of its flight.
        case open
        /// Has its outcome, and waits for a subscriber.
        case awaitingSubscriber
        /// Its terminal waits for delivery or acknowledgement.
        case delivering
        /// Is being written to disk, or its failure is being deleted there; not accepted yet.
        case awaitingDurableAcceptance
        /// Its outcome is being written to disk.
        case writingOutcome
        /// Its outcome is on disk only.
        case outcomeOnlyOnDisk
    }

    /// Options that few requests set.
    package struct RareOptions {
        var expectedDigest: String?
        var maximumBodyBytes: Int?
        var maximumBytesPerSecond: Int?
        /// Time from the request of the program to its arrival here, as the client states it. Results of other nodes
        /// from that time answer it.
        var ageMilliseconds = 0
        var progressIntervalMilliseconds: Int?
        var lastProgressAt: MonotonicTime?
        /// Time of the timer for the next PROGRESS; nil without one.
        var nextProgressTimerAt: MonotonicTime?
        /// Whether PROGRESS names the file in which the body grows.
        var isStreaming: Bool
        /// Demanded form of the body.
        var demandedBodyForm: BodyDelivery
        /// Maximum time of a wait for a cool-down; nil for no limit.
        var maximumCoolDownWaitMilliseconds: Int?
        /// Begin of its latest wait for a cool-down since its last attempt.
        var coolDownWaitStartedAt: MonotonicTime?
        /// Conditions that turn a response into a 304 for this request alone.
        var clientConditions: RequestConditions?
        /// HTTP fields of the request, if they differ from those of its flight.
        var ownHeaderFields: HeaderFields?
        /// Redirects that were followed, for the terminal, once the request has its outcome.
        var followedRedirects: [Terminal.Redirect] = []

        /// Default time between two PROGRESS messages of a streaming request: prompt, and few beside the body's own
        /// chunks.
        private static let streamingProgressMilliseconds = 100

        /// Creates the options of a request that has the default of each.
        init() {
            isStreaming = false
            demandedBodyForm = .auto
        }

        /// Latest end of its wait for a cool-down; nil without a limit, and if it has waited only for an earlier one.
        func coolDownWaitDeadline(in coolDown: CoolDown) -> MonotonicTime? {
            guard let maximumCoolDownWaitMilliseconds, let coolDownWaitStartedAt,
                coolDownWaitStartedAt >= coolDown.firstStartedAt
            else { return nil }
            return coolDownWaitStartedAt.advanced(byMilliseconds: maximumCoolDownWaitMilliseconds)
        }

        /// Returns nil if all options have their defaults.
        init?(nonDefault options: borrowing Fetch.Options) {
            guard
                options.expectedSHA256 != nil || options.maximumBodyBytes != nil
                    || options.handlerBytesPerSecond != nil || options.progressIntervalMilliseconds != nil
                    || options.streams || options.delivery != .auto || options.coolDownWaitMilliseconds != nil
            else { return nil }
            expectedDigest = options.expectedSHA256
            maximumBodyBytes = options.maximumBodyBytes
            maximumBytesPerSecond = options.handlerBytesPerSecond
            isStreaming = options.streams
            demandedBodyForm = options.delivery
            maximumCoolDownWaitMilliseconds = options.coolDownWaitMilliseconds
            progressIntervalMilliseconds =
                options.progressIntervalMilliseconds ?? (isStreaming ? Self.streamingProgressMilliseconds : nil)
        }
    }

    package let request: RequestID
    /// Time at which the program made the request, possibly to an earlier broker, or repeated it by RETRY.
    package var requestedAt: MonotonicTime
    /// Hash of the request's content. Distinguishes a repeated request from a different one under the same ID.
    let contentHash: UInt64
    /// Distinguishes this record from earlier ones in the same place, and the request from itself before a RETRY.
    var generation: UInt64
    package let handler: Handle<HandlerEntry>
    /// Client that owns the request; nil if the request belongs to its handler, or if the owner's own delivery has
    /// ended.
    @OptionalHandle package var owner: Handle<ClientSession>?
    @OptionalHandle var flight: Handle<Flight>? = nil
    @OptionalHandle package var outcome: Handle<Outcome>? = nil
    @OptionalHandle var rareOptions: Handle<Interest.RareOptions>? = nil
    /// Number of deliveries neither acknowledged nor lost.
    var outstandingDeliveryCount: Int32 = 0
    package var priority: PriorityClass
    package private(set) var phase = Phase.open
    let usesWarmDelivery: Bool
    /// Whether it replaced all earlier requests of its handler.
    let isReplacement: Bool
    /// Whether it ends with the attempt that it waits for, even if other requests of the flight try again.
    let endsAfterOneAttempt: Bool
    /// Whether it joined a flight that another request began.
    var joinedExistingFlight = false
    /// Whether its ID is still taken.
    package var isRequestIDTaken = true

    /// Changes the phase. All changes go through here.
    mutating func enter(_ next: Phase) {
        precondition(
            Self.isLegal(from: phase, to: next), "request \(request) cannot become \(next) when it is \(phase)")
        phase = next
    }

    static func isLegal(from: Phase, to: Phase) -> Bool {
        switch (from, to) {
        case (.open, .awaitingDurableAcceptance), (.open, .writingOutcome), (.open, .awaitingSubscriber),
            (.open, .outcomeOnlyOnDisk):
            true
        case (.awaitingDurableAcceptance, .open), (.awaitingDurableAcceptance, .writingOutcome),
            (.awaitingDurableAcceptance, .outcomeOnlyOnDisk):
            true
        case (.writingOutcome, .awaitingSubscriber), (.writingOutcome, .outcomeOnlyOnDisk),
            (.writingOutcome, .awaitingDurableAcceptance):
            true
        case (.outcomeOnlyOnDisk, .writingOutcome): true
        case (.delivering, .writingOutcome), (.delivering, .outcomeOnlyOnDisk): true
        case (.open, .delivering), (.awaitingSubscriber, .delivering), (.awaitingDurableAcceptance, .delivering): true
        case (.writingOutcome, .delivering), (.outcomeOnlyOnDisk, .delivering): true
        case (.open, _), (.awaitingSubscriber, _), (.awaitingDurableAcceptance, _), (.writingOutcome, _),
            (.outcomeOnlyOnDisk, _), (.delivering, _):
            false
        }
    }
}
