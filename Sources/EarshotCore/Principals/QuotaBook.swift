/// Use of the bus by each principal (a user of the bus), and the quotas that bound it.
///
/// The administrator has no quota, and its use is not counted, so on a bus of one user a check costs one comparison. A
/// quota of 0 does not bound. At a quota the broker refuses, usually with the code `quota`. At the quota of transfers
/// the queue parks the principal's lanes.
///
/// *Shared amounts* have a bound for all together. A principal gets a quarter of it, and the administrator leaves the
/// last quarter to the others.
package struct QuotaBook {
    /// Amounts that principals use, or may use.
    package struct ResourceAmounts: Equatable {
        /// Open requests.
        var openRequests = 0
        /// Attempts that occupy a slot, including those being cancelled.
        package var transfers = 0
        /// Bytes of bodies that are growing or not acknowledged.
        var spoolBytes = 0
        /// Bytes of results in memory: bodies that are or may be there, header fields and URLs.
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
        /// Number of partial bodies of flights that wait. Shared.
        var waitingParts = 0

        var isEmpty: Bool { self == ResourceAmounts() }
    }

    /// Quotas of each principal; 0 for none.
    package typealias Limits = ResourceAmounts
    /// Use by one principal.
    package typealias Use = ResourceAmounts

    /// One principal's part of a bound for all: a quarter.
    static func principalPart(of all: Int) -> Int { all == 0 ? 0 : max(1, all / 4) }

    /// Copy of the transfers for one search through the queue, which shares the storage of the table.
    struct Snapshot {
        fileprivate let transfers: Int
        fileprivate let usesByPrincipal: [Handle<Principal>: Use]

        /// Whether a principal is at the quota of transfers.
        func isTransferQuotaFull(_ principal: Handle<Principal>) -> Bool {
            // The administrator has no entry.
            usesByPrincipal[principal].map { $0.transfers >= transfers } ?? false
        }
    }

    package private(set) var limits: Limits
    /// Use by principal. A principal without any has no entry.
    private(set) var usesByPrincipal: [Handle<Principal>: Use] = [:]

    /// Whether users other than the administrator may connect. Then the administrator leaves them the last part of each
    /// bound.
    var mayHaveOtherUsers = false

    /// Shared amounts of all principals together, with the administrator.
    private(set) var totalUse = ResourceAmounts()

    init(limits: Limits) { self.limits = limits }

    /// Use by a principal; nothing for the administrator.
    package func currentUse(by principal: Handle<Principal>) -> Use { usesByPrincipal[principal] ?? Use() }

    /// Principals that use anything. Their handles must not be reused.
    var principals: Set<Handle<Principal>> { Set(usesByPrincipal.keys) }

    // MARK: Requests

    /// Adds open requests. A negative number subtracts.
    mutating func addRequests(_ change: Int, of principal: Handle<Principal>) {
        addUse(change, to: \.openRequests, of: principal)
    }

    /// Whether the open requests of a principal, including one that was just added, are within the quota.
    func admitsRequests(of principal: Handle<Principal>) -> Bool {
        isUnlimited(limits.openRequests, principal) || currentUse(by: principal).openRequests <= limits.openRequests
    }

    // MARK: Transfers

    mutating func transferStarted(by principal: Handle<Principal>) { addUse(1, to: \.transfers, of: principal) }

    /// Counts the end of a transfer.
    ///
    /// - Returns: whether the principal was at the quota and is below it now.
    mutating func transferEnded(by principal: Handle<Principal>) -> Bool {
        let wasFull = isTransferQuotaFull(principal)
        addUse(-1, to: \.transfers, of: principal)
        return wasFull && !isTransferQuotaFull(principal)
    }

    /// The transfers of all principals; nil if none is bounded.
    var snapshot: Snapshot? {
        limits.transfers == 0 || usesByPrincipal.isEmpty
            ? nil : Snapshot(transfers: limits.transfers, usesByPrincipal: usesByPrincipal)
    }

    /// Whether a principal is at the quota of transfers.
    package func isTransferQuotaFull(_ principal: Handle<Principal>) -> Bool {
        !isUnlimited(limits.transfers, principal) && currentUse(by: principal).transfers >= limits.transfers
    }

    // MARK: Bytes

    /// Adds bytes of bodies. A negative number subtracts.
    mutating func addSpoolBytes(_ change: Int, of principal: Handle<Principal>) {
        addUse(change, to: \.spoolBytes, of: principal)
    }

    /// Whether a principal may hold this many bytes more.
    func hasRoomInSpool(for bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnlimited(limits.spoolBytes, principal) || bytes <= limits.spoolBytes - currentUse(by: principal).spoolBytes
    }

    /// Adds bytes of results in memory. A negative number subtracts.
    mutating func addMemoryBytes(_ change: Int, of principal: Handle<Principal>) {
        addUse(change, to: \.memoryBytes, of: principal)
    }

    /// Whether a principal may have this many bytes of results in memory more.
    func hasRoomInMemory(_ bytes: Int, of principal: Handle<Principal>) -> Bool {
        isUnlimited(limits.memoryBytes, principal)
            || bytes <= limits.memoryBytes - currentUse(by: principal).memoryBytes
    }

    /// Adds due terminals. A negative number subtracts.
    mutating func addTerminals(_ change: Int, of principal: Handle<Principal>) {
        addUse(change, to: \.terminals, of: principal)
    }

    /// Whether more terminals are due to a principal than it may have.
    func hasTooManyTerminals(_ principal: Handle<Principal>) -> Bool {
        !isUnlimited(limits.terminals, principal) && currentUse(by: principal).terminals > limits.terminals
    }

    /// Whether a principal may have this many durable bytes more.
    ///
    /// - Parameter bound: bytes that all principals together may have.
    func hasRoomForDurableBytes(_ bytes: Int, of principal: Handle<Principal>, within bound: Int) -> Bool {
        guard principal != PrincipalTable.administrator else {
            return leavesReservedPart(of: bound, using: totalUse.durableBytes + bytes, \.durableBytes)
        }
        return limits.durableBytes == 0 || bytes <= limits.durableBytes - currentUse(by: principal).durableBytes
    }

    /// Whether a durable request of an earlier broker may be loaded for a principal. A first one always may, because
    /// one above the quota would stay in the table otherwise.
    func admitsDurableRow(_ bytes: Int, of principal: Handle<Principal>) -> Bool {
        let used = currentUse(by: principal).durableBytes
        return isUnlimited(limits.durableBytes, principal) || used == 0 || bytes <= limits.durableBytes - used
    }

    // MARK: Shared amounts

    /// Whether a principal may use this much more of a shared amount, of which all together may use `bound`.
    func admitsSharedAmount(
        _ amount: Int, of kind: KeyPath<ResourceAmounts, Int>, for principal: Handle<Principal>, within bound: Int
    ) -> Bool {
        totalUse[keyPath: kind] + amount <= bound
            && leavesOthersTheirParts(amount, of: kind, for: principal, within: bound)
    }

    /// Whether a principal with this much more of a shared amount leaves the others their parts.
    func leavesOthersTheirParts(
        _ amount: Int, of kind: KeyPath<ResourceAmounts, Int>, for principal: Handle<Principal>, within bound: Int
    ) -> Bool {
        guard principal == PrincipalTable.administrator else {
            return currentUse(by: principal)[keyPath: kind] + amount <= Self.principalPart(of: bound)
        }
        return leavesReservedPart(of: bound, using: totalUse[keyPath: kind] + amount, kind)
    }

    /// Whether the administrator leaves the last part of a bound to other users, if there are any. O(principals) when
    /// all together have more than the rest.
    ///
    /// - Parameter all: use by all principals together.
    func leavesReservedPart(of bound: Int, using all: Int, _ kind: KeyPath<ResourceAmounts, Int>) -> Bool {
        let most = bound - Self.principalPart(of: bound)
        return !mayHaveOtherUsers || all <= most
            || all - usesByPrincipal.values.reduce(0) { $0 + $1[keyPath: kind] } <= most
    }

    /// Adds to a shared amount. A negative number subtracts.
    mutating func addSharedAmount(
        _ change: Int, of kind: WritableKeyPath<ResourceAmounts, Int>, by principal: Handle<Principal>
    ) {
        guard change != 0 else { return }
        totalUse[keyPath: kind] += change
        addUse(change, to: kind, of: principal)
    }

    /// Principals by their use of a shared amount, without the administrator, the heaviest first.
    func principalsByDescendingUse(_ kind: KeyPath<ResourceAmounts, Int>) -> [Handle<Principal>] {
        usesByPrincipal.filter { $0.value[keyPath: kind] > 0 }
            .sorted { ($1.value[keyPath: kind], $0.key) < ($0.value[keyPath: kind], $1.key) }.map(\.key)
    }

    // MARK: Limits

    /// Changes the quotas.
    ///
    /// - Returns: principals that are no longer at the quota of transfers.
    mutating func setLimits(_ limits: Limits) -> [Handle<Principal>] {
        let full = usesByPrincipal.keys.filter { isTransferQuotaFull($0) }
        self.limits = limits
        return full.filter { !isTransferQuotaFull($0) }.sorted()
    }

    private func isUnlimited(_ limit: Int, _ principal: Handle<Principal>) -> Bool {
        principal == PrincipalTable.administrator || limit == 0
    }

    private mutating func addUse(_ change: Int, to member: WritableKeyPath<Use, Int>, of principal: Handle<Principal>) {
        guard principal != PrincipalTable.administrator, change != 0 else { return }
        addNonzeroUse(change, to: member, of: principal)
    }

    @inline(never)
    private mutating func addNonzeroUse(
        _ change: Int, to member: WritableKeyPath<Use, Int>, of principal: Handle<Principal>
    ) {
        var use = currentUse(by: principal)
        use[keyPath: member] += change
        precondition(use[keyPath: member] >= 0, "principal \(principal) has a negative count: \(use)")
        usesByPrincipal[principal] = use.isEmpty ? nil : use
    }

    // MARK: Memory and checks

    mutating func releaseSpareCapacity(retaining least: Int) { usesByPrincipal.releaseSpareCapacity(retaining: least) }

    /// Returns a sentence for each violated invariant. O(principals).
    ///
    /// - Parameter expected: the use that the tables of requests, leases, windows and durable requests show.
    func checkInvariants(expected: [Handle<Principal>: Use]) -> [String] {
        var faults: [String] = []
        let sum = expected.values.reduce(into: ResourceAmounts()) {
            $0.headBytes += $1.headBytes
            $0.bodyBytes += $1.bodyBytes
            $0.subscriptions += $1.subscriptions
            $0.cookieBytes += $1.cookieBytes
            $0.waitingParts += $1.waitingParts
            $0.durableBytes += $1.durableBytes
        }
        if totalUse != sum { faults.append("11: all principals together have \(totalUse), not \(sum)") }
        for principal in Set(usesByPrincipal.keys).union(expected.keys).sorted() {
            let (own, right) = (currentUse(by: principal), expected[principal] ?? Use())
            if principal == PrincipalTable.administrator, usesByPrincipal[principal] != nil {
                faults.append("11: the use of the administrator is counted")
            } else if own != right, principal != PrincipalTable.administrator {
                faults.append("11: principal \(principal) has \(own), not \(right)")
            }
            if usesByPrincipal[principal]?.isEmpty == true {
                faults.append("12: principal \(principal) has an empty entry")
            }
        }
        return faults
    }
}

extension CoreLimits {
    /// Quotas of each user.
    var userQuotas: QuotaBook.Limits {
        QuotaBook.Limits(
            openRequests: maximumOpenRequestsPerUser, transfers: maximumTransfersPerUser,
            spoolBytes: maximumSpoolBytesPerUser, memoryBytes: maximumMemoryBytesPerUser,
            terminals: maximumDueTerminalsPerUser, durableBytes: maximumDurableBytesPerUser)
    }
}

/// Sentences of refusals and failures with the code `quota`.
enum QuotaRefusalText {
    static let spoolFull =
        "The bodies that this user has not acknowledged reach the setting spool-per-user; acknowledge some of them."
    static let memoryFull =
        "This user has not acknowledged 256 MiB of results in memory: bodies of at most 64 KiB, fields, URLs; acknowledge some."
    static let requestMemoryFull =
        "The heads or bodies of this user's open requests take a quarter of their memory; wait for some of them."
    static let tooManyRequests =
        "This user has as many open requests as the setting requests-per-user permits; wait for some, or remove some."
    static let durableStorageFull =
        "This user's durable requests and results reach the setting durable-per-user; acknowledge some of them."
    static let tooManySubscriptions = "this user has a quarter of all subscriptions; unsubscribe from some first"
    static let cookies =
        "the cookie jars of this user take a quarter of their memory; remove the handlers of a root, or wait for cookie-time"
}
