/// Deliberate fault between core and model, at least one per invariant. The model must report a violation with its
/// number.
///
/// The core stays unchanged; its events or actions are modified in transit.
public enum Canary: String, CaseIterable, Sendable {
    /// A terminal is delivered twice.
    case duplicateTerminal = "duplicate-terminal"
    /// Some terminals are not delivered.
    case lostTerminal = "lost-terminal"
    /// A failed write is not reported.
    case ignoredFullDisk = "ignored-full-disk"
    /// A request fails with `spool-full` although there is room.
    case inventedFullDisk = "invented-full-disk"
    /// A returning client does not receive its first unacknowledged terminal.
    case lostRedelivery = "lost-redelivery"
    /// A resumed session does not receive one of its replies.
    case lostReply = "lost-reply"
    /// A message with an old number is carried out.
    case repeatedMessage = "repeated-message"
    /// A terminal is delivered again after its client removed the handler.
    case terminalAfterRemoval = "terminal-after-removal"
    /// A JOB is sent to the worker again as its next attempt.
    case duplicateAttempt = "second-attempt"
    /// A CANCEL is not sent.
    case lostCancellation = "lost-cancellation"
    /// A transfer is cancelled before the client that hands it over has requested it again.
    case earlyHandOverCancellation = "cut-hand-over"
    /// A request receives the cancellation of another one.
    case inheritedCancellation = "inherited-cancellation"
    /// A stale completion counts as the current one.
    case staleCompletion = "stale-completion"
    /// A request of class `low` counts as `high`.
    case wrongPriorityClass = "wrong-class"
    /// A deadline ends other requests of its owner as well.
    case sharedDeadline = "shared-deadline"
    /// An origin gets one transfer more than its limit.
    case originOverLimit = "origin-over-limit"
    /// An origin's transfers start without spacing.
    case unspacedStarts = "unspaced-starts"
    /// An ACK is not counted.
    case uncountedAcknowledgement = "uncounted-acknowledgement"
    /// A client may queue more than its limit.
    case unboundedClient = "unbounded-client"

    /// A disconnected client is removed before its lease expires.
    case removedBeforeLeaseExpiry = "removed-before-lease"

    /// A new broker does not await the workers of the old one.
    case unawaitedWorkers = "unheard-workers"

    /// A transfer resumes at a byte other than the end of the stored part.
    case splicedBody = "spliced-body"

    /// A worker that isolates a suspect gets other jobs.
    case unisolatedSuspect = "crowded-suspect"

    /// A user's worker gets jobs of schemes that it did not register.
    case foreignScheme = "foreign-scheme"

    /// A worker of one principal serves all of them.
    case foreignPool = "foreign-pool"

    /// A user's worker gets one job more than it has slots.
    case unboundedWorker = "unbounded-worker"

    /// A user gets one transfer more than its quota.
    case unboundedUser = "unbounded-user"

    /// A user gets one transfer less than its quota.
    case starvedUser = "starved-user"

    /// A user's worker is killed instead of disconnected.
    case killedUserWorker = "killed-own-worker"

    /// Requests wait too long for a worker of a deserted scheme.
    case endlessSchemeWait = "deserted-scheme"

    /// TAKE is answered with a path although others have the file or may get it.
    case takeOfSharedFile = "shared-take"

    /// TAKE of a file that is given away is answered without its path.
    case lostTakePath = "lost-take"

    /// A terminal goes to a client of another principal.
    case foreignTerminal = "foreign-terminal"

    /// All principals act in one namespace.
    case sharedNamespace = "shared-namespace"

    /// A request waits for a cool-down without the limit of its `wait-ms`.
    case endlessWait = "endless-wait"

    /// A request with `retries: 0` is tried again.
    case needlessRetry = "needless-retry"

    /// A request with `errors: deliver` fails with the error of its origin.
    case undeliveredError = "undelivered-error"

    /// The condition of a request is lost.
    case lostCondition = "lost-condition"

    /// Invariants of which it violates one first.
    public var invariants: Set<Int> {
        switch self {
        case .duplicateTerminal, .lostTerminal, .lostRedelivery, .lostReply, .repeatedMessage, .inventedFullDisk,
            .starvedUser, .undeliveredError, .lostCondition:
            [1]
        case .terminalAfterRemoval: [2]
        case .duplicateAttempt: [3]
        case .lostCancellation, .earlyHandOverCancellation: [4]
        case .inheritedCancellation: [5]
        case .staleCompletion: [6]
        case .wrongPriorityClass: [7]
        case .sharedDeadline, .unisolatedSuspect, .endlessWait: [8]
        // The attempt is one too many, or the end of a request that shared the first one is missing.
        case .needlessRetry: [3, 10]
        case .originOverLimit, .unspacedStarts, .unawaitedWorkers: [9]
        case .uncountedAcknowledgement: [10]
        case .unboundedClient, .unboundedUser: [11]
        // The body that the disk refused is delivered, or counted as one in memory.
        case .ignoredFullDisk: [1, 11]
        // A class below `high` gets its share of an additional slot.
        case .unboundedWorker: [7, 11]
        case .removedBeforeLeaseExpiry, .splicedBody: [12]
        case .foreignScheme, .foreignPool, .killedUserWorker: [14]
        // A request waits for the user's workers although those of all users are free.
        case .endlessSchemeWait: [1, 14]
        case .takeOfSharedFile, .lostTakePath: [15]
        case .foreignTerminal: [16]
        // Another principal's request counts as one's own: its ID is in use, or its file is given away. The
        // event at which the counts differ may be one of workers.
        case .sharedNamespace: [1, 2, 10, 11, 14, 15, 16]
        }
    }
}
