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
        var lastProbedAt: MonotonicTime?
        /// Whether the latest read failed.
        var hasFailedLastRead = false
    }

    /// Addresses of other nodes, more than a cluster has.
    private static let maximumPeers = 4_096
    /// Notices that wait for the shell. Later ones are dropped, since they repeat the same.
    private static let maximumNotices = 256
    /// Interval of probes of an address whose bodies cannot be read.
    static let probeIntervalMilliseconds = 10_000
    /// Maximum number of probes at a time. Others are due when the engine reports the members again.
    static let maximumConcurrentProbes = 64
    /// Reports in a row with one address twice, which the lease of a restarted node does not outlast.
    static let sharedAddressReportThreshold =
        2 * EngineLimits.leaseMilliseconds / ClusterBook.surveyIntervalMilliseconds

    /// Interval of lines about released bodies.
    static let releaseNoticeIntervalMilliseconds = 60_000

    /// Address of this node.
    private let ownAddress: String
    /// Its settings, which are compared with those of the other nodes; nil until they are known.
    private var ownSettings: NodeSettings?
    private var outboundBreaker = CircuitBreaker()
    private var ownBodiesBreaker = CircuitBreaker()
    private var peers: [String: Peer] = [:]
    /// Reports in a row in which two nodes had an address.
    private var sharedAddresses: [String: Int] = [:]
    package private(set) var warnings: [NodeWarning] = []
    private var notices: [ClusterNotice] = []
    private var probes: [String] = []
    /// Time of the latest line about released bodies.
    private var lastReleaseNoticeTime: MonotonicTime?

    init(address: String) { self.ownAddress = address }

    // MARK: Work for other nodes

    /// Which flights of others this node should request.
    func permittedHosting(now: MonotonicTime) -> HostingPermission {
        guard !outboundBreaker.isClosed || !ownBodiesBreaker.isClosed else { return .all }
        return outboundBreaker.permitsTrial(now: now) && ownBodiesBreaker.permitsTrial(now: now) ? .singleTrial : .none
    }

    /// Records that the request for a single flight of another node is sent.
    mutating func hostingTrialBegan(now: MonotonicTime) {
        outboundBreaker.trialBegan(now: now)
        ownBodiesBreaker.trialBegan(now: now)
    }

    /// An attempt for other nodes had a response, so the way to origins works.
    mutating func hostingSucceeded() {
        if outboundBreaker.succeeded() { clearWarning(.outboundFailures) }
    }

    /// An attempt for other nodes failed. Only failures without a connection, or of this node alone, count.
    mutating func hostingFailed(_ code: FailureCode, now: MonotonicTime) {
        guard SharedResult.isOutboundFailure(code) || !SharedResult.isSharedFailure(code) else { return }
        if outboundBreaker.failed(now: now) { raiseWarning(.outboundFailures, code.rawValue) }
    }

    /// Another node refuses the bodies of this one.
    mutating func peerRefusesOwnBodies(now: MonotonicTime) {
        if ownBodiesBreaker.failed(now: now) { raiseWarning(.ownBodiesUnreadable, "") }
    }

    /// Whether this node leaves the flights of its own requests to other nodes: they cannot read its bodies and would
    /// fetch the URLs again, while it can read theirs.
    var leavesFlightsToOtherNodes: Bool {
        !ownBodiesBreaker.isClosed && peers.values.allSatisfy { $0.breaker.isClosed && !$0.hasFailedLastRead }
    }

    /// Another node has requested a body. Before the breaker opens, this does not offset the nodes that cannot read the
    /// bodies.
    mutating func bodyServed() {
        guard !ownBodiesBreaker.isClosed, ownBodiesBreaker.succeeded() else { return }
        clearWarning(.ownBodiesUnreadable)
    }

    /// Another node has requested a body that is gone.
    mutating func requestedBodyMissing(_ place: BodyAddress) {
        addNotice(.requestedBodyMissing(place: place.description))
    }

    /// A body for other nodes was released before its time.
    mutating func bodyReleasedEarly(now: MonotonicTime) {
        if let lastReleaseNoticeTime,
            now.milliseconds(since: lastReleaseNoticeTime) < Self.releaseNoticeIntervalMilliseconds
        {
            return
        }
        lastReleaseNoticeTime = now
        addNotice(.bodiesReleasedEarly)
    }

    // MARK: Bodies of other nodes

    /// Whether a body at this address may be read now. A try of an avoided node is noted.
    mutating func mayReadBody(at address: String, now: MonotonicTime) -> Bool {
        guard peers[address]?.breaker.permitsTrial(now: now) ?? true else { return false }
        peers[address]?.breaker.trialBegan(now: now)
        return true
    }

    /// A node has answered a request for a body.
    mutating func peerAnswered(at address: String) {
        guard peers[address] != nil else { return }
        peers[address]?.hasFailedLastRead = false
        if peers[address]?.breaker.succeeded() == true { clearWarning(.peerBodiesUnreadable(address)) }
    }

    /// A body could not be read.
    ///
    /// - Parameters:
    ///   - place: place of the body; nil for a result without it.
    ///   - isOfNetwork: whether the node could not be reached.
    mutating func bodyReadFailed(_ place: BodyAddress?, _ reason: String, isOfNetwork: Bool, now: MonotonicTime) {
        guard let place, makeRoomForPeer(at: place.address) else {
            return addNotice(.bodyReadFailed(place: place?.description ?? "-", reason: reason, isFirst: false))
        }
        let isFirst = peers[place.address]?.hasFailedLastRead != true
        peers[place.address]?.hasFailedLastRead = true
        addNotice(.bodyReadFailed(place: place.description, reason: reason, isFirst: isFirst))
        guard isOfNetwork, peers[place.address]?.breaker.failed(now: now) == true else { return }
        raiseWarning(.peerBodiesUnreadable(place.address), reason)
    }

    private mutating func makeRoomForPeer(at address: String) -> Bool {
        guard peers[address] == nil else { return true }
        guard peers.count < Self.maximumPeers else { return false }
        peers[address] = Peer()
        return true
    }

    // MARK: Reports of the engine

    /// Handles a report about the members: probes new addresses, and compares addresses and settings.
    mutating func surveyReceived(_ members: [EngineSurvey.Member], now: MonotonicTime) {
        let live = members.filter { $0.leaseMilliseconds > 0 }
        let others = Set(live.map(\.address)).subtracting([ownAddress, ""])
        for gone in peers.keys.sorted() where !others.contains(gone) && gone != ownAddress {
            peers[gone] = nil
            clearWarning(.peerBodiesUnreadable(gone))
        }
        for other in others.sorted() where makeRoomForPeer(at: other) {
            guard probes.count < Self.maximumConcurrentProbes, let peer = peers[other], isProbeDue(of: peer, now: now)
            else {
                continue
            }
            peers[other]?.lastProbedAt = now
            probes.append(other)
        }
        let reporters = live.filter { others.contains($0.address) }
        // A single one may itself be at fault.
        if 2 * reporters.count(where: { $0.cannotRead(ownAddress) }) > reporters.count { ownBodiesUnreadable(now: now) }
        compareAddresses(live.map(\.address))
        compareSettings(reporters)
    }

    /// Most of the other nodes cannot read the bodies of this one.
    private mutating func ownBodiesUnreadable(now: MonotonicTime) {
        guard ownBodiesBreaker.isClosed else { return peerRefusesOwnBodies(now: now) }
        ownBodiesBreaker.open(now: now)
        raiseWarning(.ownBodiesUnreadable, "")
    }

    private func isProbeDue(of peer: Peer, now: MonotonicTime) -> Bool {
        guard let latest = peer.lastProbedAt else { return true }
        return !peer.breaker.isClosed && now.milliseconds(since: latest) >= Self.probeIntervalMilliseconds
    }

    /// Removes and returns the addresses that the shell must try to connect to.
    mutating func takeDueProbes() -> [String] {
        defer { probes = [] }
        return probes
    }

    /// Handles the end of a probe. After a failed read, a connection shows no more than that one may be tried again.
    ///
    /// - Parameter failure: reason without a connection; nil with one.
    mutating func probeEnded(_ address: String, failure: String?, now: MonotonicTime) {
        guard peers[address] != nil else { return }
        guard let failure else {
            guard peers[address]?.hasFailedLastRead == true else { return peerAnswered(at: address) }
            peers[address]?.breaker.endPause(now: now)
            return
        }
        peers[address]?.breaker.open(now: now)
        raiseWarning(.peerBodiesUnreadable(address), failure)
    }

    private mutating func compareAddresses(_ addresses: [String]) {
        var counts: [String: Int] = [:]
        for address in addresses where !address.isEmpty { counts[address, default: 0] += 1 }
        let shared = counts.filter { $0.value > 1 }
        for address in sharedAddresses.keys.sorted() where shared[address] == nil {
            clearWarning(.duplicateAddress(address))
        }
        sharedAddresses = shared.reduce(into: [:]) { $0[$1.key] = (sharedAddresses[$1.key] ?? 0) + 1 }
        for address in sharedAddresses.keys.sorted()
        where sharedAddresses[address] ?? 0 >= Self.sharedAddressReportThreshold {
            raiseWarning(.duplicateAddress(address), "")
        }
    }

    private mutating func compareSettings(_ others: [EngineSurvey.Member]) {
        for case .differentSettings(let address) in warnings.map(\.subject)
        where !others.contains(where: { $0.address == address }) {
            clearWarning(.differentSettings(address))
        }
        guard let ownSettings else { return }
        for other in others {
            let differences = NodeSettings(other.settings).map { ownSettings.differences(from: $0) } ?? ["version"]
            if differences.isEmpty {
                clearWarning(.differentSettings(other.address))
            } else {
                raiseWarning(.differentSettings(other.address), differences.joined(separator: ", "))
            }
        }
    }

    /// Sets the settings of this node, which the next report is compared with.
    mutating func settingsChanged(to text: String) { ownSettings = NodeSettings(text) }

    // MARK: Warnings

    /// Reasons why this node runs no flights of others.
    package var suspensions: [NodeWarning] { warnings.filter(\.isSuspension) }

    /// Addresses of nodes whose bodies are not read at present.
    package var unreadableAddresses: Set<String> { Set(peers.filter { !$0.value.breaker.isClosed }.keys) }

    private mutating func raiseWarning(_ subject: NodeWarning.Subject, _ detail: String) {
        let warning = NodeWarning(subject: subject, detail: detail)
        if let index = warnings.firstIndex(where: { $0.subject == subject }) {
            warnings[index] = warning
        } else {
            warnings.append(warning)
            addNotice(.warning(warning))
        }
    }

    private mutating func clearWarning(_ subject: NodeWarning.Subject) {
        guard let index = warnings.firstIndex(where: { $0.subject == subject }) else { return }
        addNotice(.warningCleared(warnings.remove(at: index)))
    }

    private mutating func addNotice(_ notice: ClusterNotice) {
        if notices.count < Self.maximumNotices { notices.append(notice) }
    }

    /// Removes and returns the lines for the log.
    mutating func takeNotices() -> [ClusterNotice] {
        guard !notices.isEmpty else { return [] }
        defer { notices = [] }
        return notices
    }
}

/// Flights of other nodes that a node requests.
enum HostingPermission: Equatable {
    case all
    /// A single one, as a try.
    case singleTrial
    case none
}

/// Digests of the settings that should be equal on all nodes, as a node reports them: four words of hexadecimal digits,
/// separated by full stops.
///
/// ```
/// 3f2a91c0.00d1c2b3.9a8b7c6d.44e5f6a7        address policy, limits, rules for origins, version
/// ```
struct NodeSettings: Equatable {
    private static let settingNames = ["address policy", "limits", "rules for origins", "version"]

    private let settingValues: [Substring]

    /// Nil for any other text, such as that of another version.
    init?(_ text: String) {
        settingValues = text.split(separator: ".", omittingEmptySubsequences: false)
        guard settingValues.count == Self.settingNames.count, settingValues.allSatisfy({ !$0.isEmpty }) else {
            return nil
        }
    }

    /// Names of the settings that differ.
    func differences(from other: NodeSettings) -> [String] {
        zip(Self.settingNames, zip(settingValues, other.settingValues)).filter { $1.0 != $1.1 }.map(\.0)
    }
}
