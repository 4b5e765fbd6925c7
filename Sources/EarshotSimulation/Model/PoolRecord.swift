internal import EarshotCore
internal import EarshotWire

/// Model's state of one worker connection: its slots, schemes and leases.
final class PoolRecord {
    /// Assigned attempt that has not ended.
    struct Lease {
        var origin: Substring
        var isHigh: Bool
        /// Maximum body size in its JOB; possibly raised later.
        var maximumBodyBytes: Int?
        /// Requested content. `flight` is nil once no request waits for it.
        let content: FlightContent
        /// Number of bytes of the beginning of the body that it was given; 0 for none.
        var resumedBytes: Int
        /// Principal whose quota of transfers it uses; nil for the administrator.
        var principal: PrincipalName?
        var flight: FlightRecord?
        /// File of its growing body, and the header fields of its response.
        var file: String?
        var fields: [UInt8] = []
        /// Sessions that know that file, or the part that it continues.
        var sessionsKnowingFile: [SessionRecord] = []
        /// Whether it continues a part that outlived its flight and that a session knows.
        var continuesKnownPart = false
    }

    let id: WorkerID
    let process: Int32
    var isReady = false
    /// Schemes it serves, once it is ready.
    var schemes: Set<Substring> = []
    var pid = 0
    /// Whether it gets no new work.
    var isLeaving = false
    /// Whether it receives DRAIN although it belongs to a user.
    var acceptsDrain = false
    var slots = 0
    /// Leases by attempt ID.
    var leases: [AttemptID: Lease] = [:]
    /// Suspect that it runs alone, and the end of the isolation.
    var isolation: (attempt: AttemptID, end: MonotonicTime)?
    /// Whether all jobs since it was last empty belong to suspects.
    var hasSuspectsOnly = false
    /// Time of the unanswered PING.
    var pingedAt: MonotonicTime?

    init(_ id: WorkerID, process: Int32) {
        self.id = id
        self.process = process
    }

    /// Whether it belongs to a user instead of the supervisor.
    var isUserWorker: Bool { schemes.isDisjoint(with: JobContent.webSchemes) }
    var takesWork: Bool { isReady && !isLeaving }
    var leasesBelowHigh: Int { takesWork ? leases.values.count { !$0.isHigh } : 0 }
    var freeSlots: Int {
        takesWork && isolation == nil ? max(0, slots - leases.count) : 0
    }

    func serves(_ scheme: Substring) -> Bool { schemes.contains(scheme) }
}
