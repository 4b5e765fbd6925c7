/// Use of the bus by each principal (a user of the bus), and the quotas that bound it.
///
/// The administrator has no quota, and its use is not counted, so on a bus of one user a check costs one comparison. A quota of 0 does
/// not bound. At a quota the broker refuses with the code `quota` or another of its code; at that of transfers the queue parks the
/// principal's lanes.
///
/// *Shared amounts* have a bound for all together. A principal gets a quarter of it, and the administrator leaves the last
/// quarter to the others.
package struct QuotaBook {
    /// Amounts that principals use, or may use.
    package struct Amounts: Equatable {
        /// Open requests.
        var requests = 0
        /// Attempts that occupy a slot, including those being cancelled.
        package var transfers = 0
        /// Bytes of bodies that are growing or not acknowledged.
        var spoolBytes = 0
        /// Bytes of results in memory: those bodies that are there or may be, header fields and URLs.
        var memoryBytes = 0
        /// Terminals due to all sessions.
        var terminals = 0
        /// Bytes of durable requests and their results. Shared.
        var durableBytes = 0
        /// Bytes of long heads of open requests. Shared.
        var headBytes = 0
        /// Bytes of bodies of open requests. Shared.
        var bodyBytes = 0
        /// Subscriptions of connections. Shared.
        var subscriptions = 0
        /// Bytes of cookie jars. Shared.
        var cookieBytes = 0
        /// Partial bodies of flights that wait. Shared.
        var parts = 0

        var isEmpty: Bool { self == Amounts() }
    }

    /// Quotas of each principal; 0 for none.
    package typealias Limits = Amounts
    /// Use by one principal.
    package typealias Use = Amounts

    /// One principal's part of a bound for all: a quarter.
    static func part(of all: Int) -> Int { all == 0 ? 0 : max(1, all / 4) }

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

    package private(set) var limits: Limits
    /// Use by principal. A principal without any has no entry.
    private(set) var uses: [Handle<Principal>: Use] = [:]

    /// Whether users other than that of the bus may connect. Then the administrator leaves them the last part of each bound.
    var hasOthers = false

    /// Shared amounts of all principals together, with the administrator.
    private(set) var total = Amounts()

    init(limits: Limits) { self.limits = limits }

    /// Use by a principal; nothing for the administrator.
    package func use(by principal: Handle<Principal>) -> Use { uses[principal] ?? Use() }

    /// Principals that use anything. Their numbers must not be reused.
    var principals: Set<Handle<Principal>> { Set(uses.keys) }

    // MARK: Requests

    /// Adds open requests. A negative number subtracts.
    mutating func requests(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.requests, of: principal)
    }

    /// Whether the open requests of a principal, including one that was just added, are within the quota.
    func admitsRequests(of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.requests, principal) || use(by: principal).requests <= limits.requests
    }

    // MARK: Transfers

    mutating func transferStarted(by principal: Handle<Principal>) { add(1, to: \.transfers, of: principal) }

    /// Counts the end of a transfer.
    ///
    /// - Returns: whether the principal was at the quota and is below it now.
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
    package func isFull(_ principal: Handle<Principal>) -> Bool {
        !isUnbounded(limits.transfers, principal) && use(by: principal).transfers >= limits.transfers
    }

    // MARK: Bytes

    /// Adds bytes of bodies. A negative number subtracts.
    mutating func spoolBytes(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.spoolBytes, of: principal)
    }

    /// Whether a principal may hold this many bytes more.
    func hasRoomInSpool(for bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.spoolBytes, principal) || bytes <= limits.spoolBytes - use(by: principal).spoolBytes
    }

    /// Adds bytes of results in memory. A negative number subtracts.
    mutating func memoryBytes(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.memoryBytes, of: principal)
    }

    /// Whether a principal may have this many bytes of results in memory more.
    func hasRoomInMemory(_ bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnbounded(limits.memoryBytes, principal) || bytes <= limits.memoryBytes - use(by: principal).memoryBytes
    }

    /// Adds due terminals. A negative number subtracts.
    mutating func terminals(_ change: Int, of principal: Handle<Principal>) {
        add(change, to: \.terminals, of: principal)
    }

    /// Whether more terminals are due to a principal than it may have.
    func hasTooManyTerminals(_ principal: Handle<Principal>) -> Bool {
        !isUnbounded(limits.terminals, principal) && use(by: principal).terminals > limits.terminals
    }

    /// Whether a principal may have this many durable bytes more.
    ///
    /// - Parameter bound: bytes that all principals together may have.
    func hasRoomForDurable(_ bytes: Int, of principal: Handle<Principal>, within bound: Int) -> Bool {
        guard principal != PrincipalTable.administrator else {
            return leavesLastPart(of: bound, using: total.durableBytes + bytes, \.durableBytes)
        }
        return limits.durableBytes == 0 || bytes <= limits.durableBytes - use(by: principal).durableBytes
    }

    /// Whether a durable request of an earlier broker may be loaded for a principal. A first one always may, because one
    /// above the quota would stay in the table otherwise.
    func admitsDurableRow(_ bytes: Int, of principal: Handle<Principal>) -> Bool {
        let used = use(by: principal).durableBytes
        return isUnbounded(limits.durableBytes, principal) || used == 0 || bytes <= limits.durableBytes - used
    }

    // MARK: Shared amounts

    /// Whether a principal may use this much more of a shared amount, of which all together may use `bound`.
    func admits(
        _ amount: Int, of kind: KeyPath<Amounts, Int>, for principal: Handle<Principal>, within bound: Int
    ) -> Bool {
        total[keyPath: kind] + amount <= bound && isWithinPart(amount, of: kind, for: principal, within: bound)
    }

    /// Whether a principal with this much more of a shared amount leaves the others their parts.
    func isWithinPart(
        _ amount: Int, of kind: KeyPath<Amounts, Int>, for principal: Handle<Principal>, within bound: Int
    ) -> Bool {
        guard principal == PrincipalTable.administrator else {
            return use(by: principal)[keyPath: kind] + amount <= Self.part(of: bound)
        }
        return leavesLastPart(of: bound, using: total[keyPath: kind] + amount, kind)
    }

    /// Whether the administrator leaves the last part of a bound to other users, if there are any. O(principals) when all
    /// together have more than the rest.
    ///
    /// - Parameter all: use by all principals together.
    func leavesLastPart(of bound: Int, using all: Int, _ kind: KeyPath<Amounts, Int>) -> Bool {
        let most = bound - Self.part(of: bound)
        return !hasOthers || all <= most || all - uses.values.reduce(0) { $0 + $1[keyPath: kind] } <= most
    }

    /// Adds to a shared amount. A negative number subtracts.
    mutating func share(_ change: Int, of kind: WritableKeyPath<Amounts, Int>, by principal: Handle<Principal>) {
        guard change != 0 else { return }
        total[keyPath: kind] += change
        add(change, to: kind, of: principal)
    }

    /// Principals by their use of a shared amount, without the administrator, the heaviest first.
    func heaviestPrincipals(_ kind: KeyPath<Amounts, Int>) -> [Handle<Principal>] {
        uses.filter { $0.value[keyPath: kind] > 0 }
            .sorted { ($1.value[keyPath: kind], $0.key) < ($0.value[keyPath: kind], $1.key) }.map(\.key)
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

    private func isUnbounded(_ limit: Int, _ principal: Handle<Principal>) -> Bool {
        principal == PrincipalTable.administrator || limit == 0
    }

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
        let sum = expected.values.reduce(into: Amounts()) {
            $0.headBytes += $1.headBytes
            $0.bodyBytes += $1.bodyBytes
            $0.subscriptions += $1.subscriptions
            $0.cookieBytes += $1.cookieBytes
            $0.parts += $1.parts
            $0.durableBytes += $1.durableBytes
        }
        if total != sum { faults.append("11: all principals together have \(total), not \(sum)") }
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

extension CoreLimits {
    /// Quotas of each user.
    var userQuotas: QuotaBook.Limits {
        QuotaBook.Limits(
            requests: requestsPerUser, transfers: transfersPerUser, spoolBytes: spoolBytesPerUser,
            memoryBytes: memoryBytesPerUser, terminals: dueDeliveriesPerUser, durableBytes: durableBytesPerUser)
    }
}

/// Sentences of refusals and failures with the code `quota`.
enum QuotaDetail {
    static let spool =
        "The bodies that this user has not acknowledged reach the setting spool-per-user; acknowledge some of them."
    static let memory =
        "This user has not acknowledged 256 MiB of results in memory: bodies of at most 64 KiB, fields, URLs; acknowledge some."
    static let message =
        "The heads or bodies of this user's open requests take a quarter of their memory; wait for some of them."
    static let request =
        "This user has as many open requests as the setting requests-per-user permits; wait for some, or remove some."
    static let durable =
        "This user's durable requests and results reach the setting durable-per-user; acknowledge some of them."
    static let subscription = "this user has a quarter of all subscriptions; unsubscribe from some first"
    static let cookies =
        "the cookie jars of this user take a quarter of their memory; remove the handlers of a root, or wait for cookie-time"
}
