/// A fault put between a core and the model on purpose, at least one for each invariant: the model has to object with
/// its number.
///
/// The core stays as it is; what it is told or what it asks for is changed on the way.
public enum Canary: String, CaseIterable, Sendable {
    /// A terminal is delivered twice.
    case duplicateTerminal = "duplicate-terminal"
    /// Some terminals that waited in the file are not read back.
    case lostWaiting = "lost-waiting"
    /// Of terminals that waited in the file another is read back.
    case swappedWaiting = "swapped-waiting"
    /// That the disk takes nothing is not told.
    case ignoredFullDisk = "ignored-full-disk"
    /// A request is told that the spool is full where it has room.
    case inventedFullDisk = "invented-full-disk"
    /// Of what was not acknowledged, one that comes back is not sent the first.
    case lostRedelivery = "lost-redelivery"
    /// Of the replies that a resumed session sends again, one is not sent.
    case lostReply = "lost-reply"
    /// A terminal is delivered again after its client removed the handler.
    case terminalAfterRemoval = "terminal-after-removal"
    /// A JOB is given to the worker again, as its next attempt.
    case secondAttempt = "second-attempt"
    /// A CANCEL does not leave the broker.
    case lostCancellation = "lost-cancellation"
    /// A transfer that a client hands over is cut off before the client has asked for it again.
    case cutHandOver = "cut-hand-over"
    /// A request is told of another's cancellation.
    case inheritedCancellation = "inherited-cancellation"
    /// A stale completion passes for the current one.
    case staleCompletion = "stale-completion"
    /// A request of class `low` counts as `high`.
    case wrongClass = "wrong-class"
    /// A deadline ends other requests of its owner too.
    case sharedDeadline = "shared-deadline"
    /// An origin gets one transfer more than its limit.
    case originOverLimit = "origin-over-limit"
    /// An origin gets one transfer right after the other.
    case unspacedStarts = "unspaced-starts"
    /// An ACK is not counted.
    case uncountedAcknowledgement = "uncounted-acknowledgement"
    /// A client may queue more than its limit.
    case unboundedClient = "unbounded-client"

    /// A client that is away is purged before its lease is over.
    case purgedBeforeLease = "purged-before-lease"

    /// A new broker does not wait for the workers of the old one.
    case unheardWorkers = "unheard-workers"

    /// A transfer goes on at another byte than the one behind what is kept.
    case splicedBody = "spliced-body"

    /// A worker that isolates a suspect gets other jobs.
    case crowdedSuspect = "crowded-suspect"

    /// A user's own worker gets jobs of schemes that it did not name.
    case foreignScheme = "foreign-scheme"

    /// A user's own worker gets one job more than it has slots for.
    case unboundedWorker = "unbounded-worker"

    /// A user's own worker is killed where its connection should be closed.
    case killedOwnWorker = "killed-own-worker"

    /// A worker of a scheme that nobody serves any more is waited for, for too long.
    case desertedScheme = "deserted-scheme"

    /// A file that others have, or may come to have, is given away.
    case sharedGift = "shared-gift"

    /// A file that was given away is told of without that.
    case lostGift = "lost-gift"

    /// A response to an earlier broker answers a request that was made after the response was whole.
    case answerBeforeRequest = "answer-before-request"

    /// The invariants of which it breaks one first.
    public var invariants: Set<Int> {
        switch self {
        case .duplicateTerminal, .lostWaiting, .swappedWaiting, .lostRedelivery, .lostReply, .inventedFullDisk,
            .answerBeforeRequest:
            [1]
        case .terminalAfterRemoval: [2]
        case .secondAttempt, .unheardWorkers: [3]
        case .lostCancellation, .cutHandOver: [4]
        case .inheritedCancellation: [5]
        case .staleCompletion: [6]
        case .wrongClass: [7]
        case .sharedDeadline, .crowdedSuspect: [8]
        case .originOverLimit, .unspacedStarts: [9]
        case .uncountedAcknowledgement: [10]
        case .unboundedClient, .ignoredFullDisk: [11]
        // Of one slot more a lower class has its share, too.
        case .unboundedWorker: [7, 11]
        case .purgedBeforeLease, .splicedBody: [12]
        case .foreignScheme, .killedOwnWorker, .desertedScheme: [14]
        case .sharedGift, .lostGift: [15]
        }
    }
}
