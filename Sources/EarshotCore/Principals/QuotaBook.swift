/// Use of the bus by each principal (a user of the bus), and the quotas that bound it.
///
/// The administrator has no quota, and its use is not counted, so on a bus of one user a check costs one comparison. A quota of 0 does
/// not bound. At the quota of requests or bytes the broker refuses with a code; at that of transfers the queue parks the
/// principal's lanes.
struct QuotaBook {
    /// Quotas of each principal; 0 for none.
    struct Limits: Equatable {
        /// Open requests.
        var requests: Int
        /// Attempts that occupy a slot, including those being cancelled.
        var transfers: Int
        /// Bytes of bodies that are growing or not acknowledged.
        var spoolBytes: Int
        /// Bytes of durable requests and their results.
        var durableBytes: Int

        init(requests: Int = 0, transfers: Int = 0, spoolBytes: Int = 0, durableBytes: Int = 0) {
            self.requests = requests
            self.transfers = transfers
            self.spoolBytes = spoolBytes
            self.durableBytes = durableBytes
        }

        init(_ limits: CoreLimits) {
            self.init(
                requests: limits.requestsPerUser, transfers: limits.transfersPerUser,
                spoolBytes: limits.spoolBytesPerUser, durableBytes: limits.durableBytesPerUser)
        }
    }

    /// Use by one principal.
    struct Use: Equatable {
        var requests = 0
        var transfers = 0
        var spoolBytes = 0
        var durableBytes = 0

        var isEmpty: Bool { self == Use() }
    }

    /// Copy of the transfers for one search through the queue, which shares the storage of the table.
    struct Snapshot {
        fileprivate let transfers: Int
        fileprivate let uses: [Handle<Principal>: Use]

        /// Whether a principal is at the quota of transfers.
        func isFull(_ principal: Handle<Principal>) -> Bool {
            // The administrator has no entry.
            uses[principal].map { $0.transfers >= transfers } ?? false
        }
    }

    private(set) var limits: Limits
    /// Use by principal. A principal without any has no entry.
    private(set) var uses: [Handle<Principal>: Use] = [:]

    init(limits: Limits) { self.limits = limits }

    /// Use by a principal; nothing for the administrator.
    func use(by principal: Handle<Principal>) -> Use { uses[principal] ?? Use() }

    /// Principals that use anything. Their numbers must not be reused.
    var principals: Set<Handle<Principal>> { Set(uses.keys) }

    // MARK: Requests

    /// Adds open requests. A negative number subtracts.
    @inline(__always)
    mutating func requests(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.requests, of: principal)
    }

    /// Whether the open requests of a principal, including one that was just added, are within the quota.
    @inline(__always)
    func admitsRequests(of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.requests, principal) || use(by: principal).requests <= limits.requests
    }

    // MARK: Transfers

    @inline(__always)
    mutating func transferStarted(by principal: Handle<Principal>) { add(1, to: \.transfers, of: principal) }

    /// Counts the end of a transfer.
    ///
    /// - Returns: whether the principal was at the quota and is below it now.
    @inline(__always)
    mutating func transferEnded(by principal: Handle<Principal>) -> Bool {
        let wasFull = isFull(principal)
        add(-1, to: \.transfers, of: principal)
        return wasFull && !isFull(principal)
    }

    /// The transfers of all principals; nil if none is bounded.
    var snapshot: Snapshot? {
        limits.transfers == 0 || uses.isEmpty ? nil : Snapshot(transfers: limits.transfers, uses: uses)
    }

    /// Whether a principal is at the quota of transfers.
    @inline(__always)
    func isFull(_ principal: Handle<Principal>) -> Bool {
        !isUnbounded(limits.transfers, principal) && use(by: principal).transfers >= limits.transfers
    }

    // MARK: Bytes

    /// Adds bytes of bodies. A negative number subtracts.
    @inline(__always)
    mutating func spoolBytes(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.spoolBytes, of: principal)
    }

    /// Whether a principal may hold this many bytes more.
    @inline(__always)
    func hasRoomInSpool(for bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.spoolBytes, principal) || bytes <= limits.spoolBytes - use(by: principal).spoolBytes
    }

    /// Adds bytes of durable requests and results. A negative number subtracts.
    mutating func durableBytes(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.durableBytes, of: principal)
    }

    /// Whether a principal may have this many durable bytes more.
    func hasRoomForDurable(_ bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.durableBytes, principal) || bytes <= limits.durableBytes - use(by: principal).durableBytes
    }

    // MARK: Limits

    /// Changes the quotas.
    ///
    /// - Returns: principals that are no longer at the quota of transfers.
    mutating func setLimits(_ limits: Limits) -> [Handle<Principal>] {
        let full = uses.keys.filter { isFull($0) }
        self.limits = limits
        return full.filter { !isFull($0) }.sorted()
    }

    @inline(__always)
    private func isUnbounded(_ limit: Int, _ principal: Handle<Principal>) -> Bool {
        principal == PrincipalTable.administrator || limit == 0
    }

    @inline(__always)
    private mutating func add(_ change: Int, to member: WritableKeyPath<Use, Int>, of principal: Handle<Principal>) {
        guard principal != PrincipalTable.administrator, change != 0 else { return }
        count(change, to: member, of: principal)
    }

    @inline(never)
    private mutating func count(_ change: Int, to member: WritableKeyPath<Use, Int>, of principal: Handle<Principal>) {
        var use = use(by: principal)
        use[keyPath: member] += change
        precondition(use[keyPath: member] >= 0, "principal \(principal) has a negative count: \(use)")
        uses[principal] = use.isEmpty ? nil : use
    }

    // MARK: Memory and checks

    mutating func releaseRoom(least: Int) { uses.releaseRoom(least: least) }

    /// Returns a sentence for each violated invariant. O(principals).
    ///
    /// - Parameter expected: the use that the tables of requests, leases, windows and durable requests show.
    func checkInvariants(expected: [Handle<Principal>: Use]) -> [String] {
        var faults: [String] = []
        for principal in Set(uses.keys).union(expected.keys).sorted() {
            let (own, right) = (use(by: principal), expected[principal] ?? Use())
            if principal == PrincipalTable.administrator, uses[principal] != nil {
                faults.append("11: the use of the administrator is counted")
            } else if own != right, principal != PrincipalTable.administrator {
                faults.append("11: principal \(principal) has \(own), not \(right)")
            }
            if uses[principal]?.isEmpty == true { faults.append("12: principal \(principal) has an empty entry") }
        }
        return faults
    }
}
