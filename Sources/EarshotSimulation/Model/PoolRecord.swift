internal import EarshotCore
internal import EarshotWire

/// What the model knows of one worker's connection.
final class PoolRecord {
    /// An attempt it was given and has not ended.
    struct Lease {
        var origin: Substring
        var isHigh: Bool
        /// What its JOB allowed; it may have been raised since.
        var maxBytes: Int?
        /// What was asked for; `flight` is nil once nobody wants it.
        let content: FlightContent
        /// Whether it was given the beginning of the body.
        let isResuming: Bool
        /// Whether an earlier broker gave it, and nobody has asked for it of this one.
        var isOrphan = false
        /// When that one's JOB began it, and when its worker told of it.
        var held: (start: Tick, told: Tick)?
        var flight: FlightRecord?
        /// Where its body grows, and the fields of the response whose body it is.
        var file: String?
        var fields: [UInt8] = []
    }

    let id: WorkerID
    var isReady = false
    /// What it fetches, once it is ready.
    var schemes: Set<Substring> = []
    var pid = 0
    /// Whether it gets nothing new.
    var isLeaving = false
    /// Whether it is told of a drain though it is a user's own.
    var hearsDrain = false
    var slots = 0
    /// By their names.
    var leases: [AttemptID: Lease] = [:]
    /// Attempts of other brokers it said it holds.
    var foreign: Set<AttemptID> = []
    /// Those of them that it has to tell of before it gets work.
    var untold: Set<AttemptID> = []
    /// The suspect that it runs alone, and until when.
    var isolation: (attempt: AttemptID, end: Tick)?
    /// Whether all jobs since it was empty were of suspects.
    var hasSuspectsOnly = false
    /// When it was asked for a sign of life that it has not given.
    var askedAt: Tick?

    init(_ id: WorkerID) {
        self.id = id
    }

    /// Whether it is a user's own.
    var isOwn: Bool { schemes.isDisjoint(with: JobContent.webSchemes) }
    var takesWork: Bool { isReady && !isLeaving }
    var lower: Int { takesWork ? leases.values.count { !$0.isHigh } : 0 }
    var freeSlots: Int {
        takesWork && untold.isEmpty && isolation == nil ? max(0, slots - leases.count - foreign.count) : 0
    }

    func serves(_ scheme: Substring) -> Bool { schemes.contains(scheme) }
}
