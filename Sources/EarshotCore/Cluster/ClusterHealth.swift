internal import EarshotHTTP

/// Whether this node can work for others, and which of their bodies it can read.
///
/// Each judgement is a `CircuitBreaker`: for flights of other nodes, for the bodies that others read here, and for the
/// bodies of each other node. While one is open, nothing depends on its network for longer than a try.
package struct ClusterHealth {
    /// Another node, by the address of its bodies.
    private struct Peer {
        var breaker = CircuitBreaker()
        /// Time of the latest probe of its address; nil before the first.
        var probedAt: Tick?
        /// Whether the latest read failed.
        var hasFailed = false
    }

    /// Addresses of other nodes, more than a cluster has.
    private static let mostPeers = 4_096
    /// Notices that wait for the shell. Later ones are dropped: they say the same.
    private static let mostNotices = 256
    /// Interval of probes of an address whose bodies cannot be read.
    static let probeMilliseconds = 10_000
    /// Maximum number of probes at a time. Others are due when the engine reports the members again.
    static let probesAtOnce = 64
    /// Reports in a row with one address twice, which the lease of a restarted node does not outlast.
    static let sharedAddressReports = 2 * EngineLimits.leaseMilliseconds / ClusterBook.surveyMilliseconds

    /// Interval of lines about released bodies.
    static let releaseMilliseconds = 60_000

    /// Address of this node.
    private let address: String
    /// Its settings, which are compared with those of the other nodes; nil until they are known.
    private var settings: NodeSettings?
    private var wayOut = CircuitBreaker()
    private var ownBodies = CircuitBreaker()
    private var peers: [String: Peer] = [:]
    /// Reports in a row in which two nodes had an address.
    private var sharedAddresses: [String: Int] = [:]
    package private(set) var warnings: [NodeWarning] = []
    private var notices: [ClusterNotice] = []
    private var probes: [String] = []
    /// Time of the latest line about released bodies.
    private var releasedAt: Tick?

    init(address: String) { self.address = address }

    // MARK: Work for other nodes

    /// Which flights of others this node should ask for.
    func hosting(now: Tick) -> Hosting {
        guard !wayOut.isClosed || !ownBodies.isClosed else { return .all }
        return wayOut.permits(now: now) && ownBodies.permits(now: now) ? .one : .none
    }

    /// The question for a single flight of another node is sent.
    mutating func triesHosting(now: Tick) {
        wayOut.tryBegan(now: now)
        ownBodies.tryBegan(now: now)
    }

    /// An attempt for other nodes had a response, so the way to origins works.
    mutating func hosted() {
        if wayOut.succeeded() { clear(.wayOut) }
    }

    /// An attempt for other nodes failed. Failures that say nothing about this node do not count.
    mutating func failedToHost(_ code: FailureCode, now: Tick) {
        guard SharedResult.isOfWayOut(code) || !SharedResult.isShared(code) else { return }
        if wayOut.failed(now: now) { raise(.wayOut, code.rawValue) }
    }

    /// Another node refuses the bodies of this one.
    mutating func isAvoided(now: Tick) {
        if ownBodies.failed(now: now) { raise(.ownBodies, "") }
    }

    /// Whether this node leaves the flights of its own requests to other nodes: they cannot read its bodies and would fetch
    /// the URLs again, while it can read theirs.
    var leavesFlights: Bool {
        !ownBodies.isClosed && peers.values.allSatisfy { $0.breaker.isClosed && !$0.hasFailed }
    }

    /// Another node has asked for a body. It does not count against those that cannot, until this node has drawn the
    /// consequence.
    mutating func servedBody() {
        guard !ownBodies.isClosed, ownBodies.succeeded() else { return }
        clear(.ownBodies)
    }

    /// Another node has asked for a body that is gone.
    mutating func lacksBody(_ place: BodyAddress) { notify(.lackedBody(place: place.description)) }

    /// A body for other nodes was released before its time.
    mutating func releasedBody(now: Tick) {
        if let releasedAt, now.milliseconds(since: releasedAt) < Self.releaseMilliseconds { return }
        releasedAt = now
        notify(.releasedBodies)
    }

    // MARK: Bodies of other nodes

    /// Whether a body at this address may be read now. A try of an avoided node is noted.
    mutating func mayRead(at address: String, now: Tick) -> Bool {
        guard peers[address]?.breaker.permits(now: now) ?? true else { return false }
        peers[address]?.breaker.tryBegan(now: now)
        return true
    }

    /// A node has answered a request for a body.
    mutating func answered(at address: String) {
        guard peers[address] != nil else { return }
        peers[address]?.hasFailed = false
        if peers[address]?.breaker.succeeded() == true { clear(.peer(address)) }
    }

    /// A body could not be read.
    ///
    /// - Parameters:
    ///   - place: place of the body; nil for a result without it.
    ///   - isOfNetwork: whether the node could not be reached.
    mutating func bodyMissed(_ place: BodyAddress?, _ reason: String, isOfNetwork: Bool, now: Tick) {
        guard let place, makeRoom(for: place.address) else {
            return notify(.missedBody(place: place?.description ?? "-", reason: reason, isFirst: false))
        }
        let isFirst = peers[place.address]?.hasFailed != true
        peers[place.address]?.hasFailed = true
        notify(.missedBody(place: place.description, reason: reason, isFirst: isFirst))
        guard isOfNetwork, peers[place.address]?.breaker.failed(now: now) == true else { return }
        raise(.peer(place.address), reason)
    }

    private mutating func makeRoom(for address: String) -> Bool {
        guard peers[address] == nil else { return true }
        guard peers.count < Self.mostPeers else { return false }
        peers[address] = Peer()
        return true
    }

    // MARK: Reports of the engine

    /// Handles a report about the members: probes new addresses, and compares addresses and settings.
    mutating func surveyed(_ members: [EngineSurvey.Member], now: Tick) {
        let live = members.filter { $0.leaseMilliseconds > 0 }
        let others = Set(live.map(\.address)).subtracting([address, ""])
        for gone in peers.keys.sorted() where !others.contains(gone) && gone != address {
            peers[gone] = nil
            clear(.peer(gone))
        }
        for other in others.sorted() where makeRoom(for: other) {
            guard probes.count < Self.probesAtOnce, let peer = peers[other], isProbeDue(of: peer, now: now) else {
                continue
            }
            peers[other]?.probedAt = now
            probes.append(other)
        }
        let reporters = live.filter { others.contains($0.address) }
        // A single one may itself be at fault.
        if 2 * reporters.count(where: { $0.cannotRead(address) }) > reporters.count { isUnreadable(now: now) }
        compareAddresses(live.map(\.address))
        compareSettings(reporters)
    }

    /// Most of the other nodes cannot read the bodies of this one.
    private mutating func isUnreadable(now: Tick) {
        guard ownBodies.isClosed else { return isAvoided(now: now) }
        ownBodies.open(now: now)
        raise(.ownBodies, "")
    }

    private func isProbeDue(of peer: Peer, now: Tick) -> Bool {
        guard let latest = peer.probedAt else { return true }
        return !peer.breaker.isClosed && now.milliseconds(since: latest) >= Self.probeMilliseconds
    }

    /// Removes and returns the addresses that the shell must try to connect to.
    mutating func takeProbes() -> [String] {
        defer { probes = [] }
        return probes
    }

    /// Handles the end of a probe. After a failed read, a connection shows no more than that one may be tried again.
    ///
    /// - Parameter failure: reason without a connection; nil with one.
    mutating func probed(_ address: String, failure: String?, now: Tick) {
        guard peers[address] != nil else { return }
        guard let failure else {
            guard peers[address]?.hasFailed == true else { return answered(at: address) }
            peers[address]?.breaker.endPause(now: now)
            return
        }
        peers[address]?.breaker.open(now: now)
        raise(.peer(address), failure)
    }

    private mutating func compareAddresses(_ addresses: [String]) {
        var counts: [String: Int] = [:]
        for address in addresses where !address.isEmpty { counts[address, default: 0] += 1 }
        let shared = counts.filter { $0.value > 1 }
        for address in sharedAddresses.keys.sorted() where shared[address] == nil { clear(.sameAddress(address)) }
        sharedAddresses = shared.reduce(into: [:]) { $0[$1.key] = (sharedAddresses[$1.key] ?? 0) + 1 }
        for address in sharedAddresses.keys.sorted()
        where sharedAddresses[address] ?? 0 >= Self.sharedAddressReports { raise(.sameAddress(address), "") }
    }

    private mutating func compareSettings(_ others: [EngineSurvey.Member]) {
        for case .settings(let address) in warnings.map(\.subject)
        where !others.contains(where: { $0.address == address }) {
            clear(.settings(address))
        }
        guard let settings else { return }
        for other in others {
            let differences = NodeSettings(other.settings).map { settings.differences(from: $0) } ?? ["version"]
            if differences.isEmpty {
                clear(.settings(other.address))
            } else {
                raise(.settings(other.address), differences.joined(separator: ", "))
            }
        }
    }

    /// Sets the settings of this node, which the next report is compared with.
    mutating func changed(settings text: String) { settings = NodeSettings(text) }

    // MARK: Warnings

    /// Reasons why this node runs no flights of others.
    package var suspensions: [NodeWarning] { warnings.filter(\.isSuspension) }

    /// Addresses of nodes whose bodies are not read at present.
    package var unreadable: Set<String> { Set(peers.filter { !$0.value.breaker.isClosed }.keys) }

    private mutating func raise(_ subject: NodeWarning.Subject, _ detail: String) {
        let warning = NodeWarning(subject: subject, detail: detail)
        if let index = warnings.firstIndex(where: { $0.subject == subject }) {
            warnings[index] = warning
        } else {
            warnings.append(warning)
            notify(.warning(warning))
        }
    }

    private mutating func clear(_ subject: NodeWarning.Subject) {
        guard let index = warnings.firstIndex(where: { $0.subject == subject }) else { return }
        notify(.remedied(warnings.remove(at: index)))
    }

    private mutating func notify(_ notice: ClusterNotice) {
        if notices.count < Self.mostNotices { notices.append(notice) }
    }

    /// Removes and returns the lines for the log.
    mutating func takeNotices() -> [ClusterNotice] {
        guard !notices.isEmpty else { return [] }
        defer { notices = [] }
        return notices
    }
}

/// Flights of other nodes that a node asks for.
enum Hosting: Equatable {
    case all
    /// A single one, as a try.
    case one
    case none
}

/// Digests of the settings that should be equal on all nodes, as a node reports them: four words of hexadecimal digits,
/// separated by full stops.
///
/// ```
/// 3f2a91c0.00d1c2b3.9a8b7c6d.44e5f6a7        address policy, limits, rules for origins, version
/// ```
struct NodeSettings: Equatable {
    private static let names = ["address policy", "limits", "rules for origins", "version"]

    private let parts: [Substring]

    /// Nil for any other text, such as that of another version.
    init?(_ text: String) {
        parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == Self.names.count, parts.allSatisfy({ !$0.isEmpty }) else { return nil }
    }

    /// Names of the settings that differ.
    func differences(from other: NodeSettings) -> [String] {
        zip(Self.names, zip(parts, other.parts)).filter { $1.0 != $1.1 }.map(\.0)
    }
}
