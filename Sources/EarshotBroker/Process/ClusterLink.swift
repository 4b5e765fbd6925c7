public import EarshotCluster
internal import EarshotCore
internal import EarshotLoop
internal import LibCrypto
internal import Logging

/// The node's connection to the engine of its cluster, and attempts to connect to the other nodes.
final class ClusterLink {
    /// Settings of the load on origins, and of the bodies that other nodes read.
    private static let sharedLimitNames: Set<String> = {
        let names: [SettingName] = [
            .originLimit, .originSpacing, .http2, .coolDown, .maximumDecodingRatio, .pageBytes, .shareBetweenUsers,
        ]
        return Set(names.map(\.rawValue))
    }()

    private let engine: EngineClient
    private let probes: PeerProbes
    private let nodeRecord: NodeRecord
    private let version: String
    private let logger: Logger
    /// Latest logged reason for which this node is no member.
    private var lastLoggedFault: EngineFault?
    /// Warnings about the engine in the log that have not ended.
    private var activeLoggedWarnings: Set<EngineWarning> = []

    init(_ membership: ClusterMembership, _ record: NodeRecord, on loop: EventLoop, logger: Logger) {
        engine = EngineClient(membership.engine, on: loop)
        probes = PeerProbes(on: loop)
        version = membership.programVersion
        self.nodeRecord = record
        self.logger = logger
    }

    /// Whether no event waits.
    var hasNoPendingEvents: Bool { engine.hasNoPendingEvents }

    func start() { engine.start() }

    func stop() { engine.stop() }

    /// Passes the events of the engine to the core.
    func deliverEvents(to core: inout BrokerCore, now: MonotonicTime) {
        engine.runPass()
        for event in engine.takeEvents() {
            if case .joined(let node, _) = event { nodeRecord.write(node) }
            logEngineEvent(event)
            core.engineEventReceived(event, now: now)
        }
        for address in core.takeClusterProbes() { probes.start(address) }
        for (address, failure) in probes.takeResults() { core.clusterProbeEnded(address, failure: failure, now: now) }
    }

    /// Sends the calls since the last answer. A call of many flights costs the engine a fraction of many calls, and a
    /// lone request waits for no answer.
    func sendEngineCalls(of core: inout BrokerCore, now: MonotonicTime) {
        if let members = core.takeUncoordinatedMemberCount() {
            logger.warning("fetches without the engine of the cluster", metadata: ["limits-divided-by": "\(members)"])
        }
        let notices = core.takeClusterNotices()
        for notice in notices { logNotice(notice) }
        if !notices.isEmpty { engine.report(unreadable: core.unreadableNodes) }
        core.setEngineBusy(engine.hasPendingCalls)
        guard !engine.hasPendingCalls else { return }
        engine.submit(core.takeEngineCalls(now: now))
    }

    /// Reads the logins of the engine again. They apply to the next connection, so a new password costs no membership.
    func readLogins(_ read: () throws -> EngineOptions) {
        do {
            let options = try read()
            engine.useLogin(options.login, ofSentinels: options.sentinelLogin)
        } catch {
            logger.error(
                "cannot read the file of the cluster; the logins of the engine stay", metadata: ["error": "\(error)"])
        }
    }

    /// Sends the other nodes digests of the settings that should be equal everywhere: the address policy, limits, rules
    /// for origins, and the version.
    func publishSettingsDigests(of core: inout BrokerCore) {
        let rows = core.settings.rows
        func digest(_ text: String) -> String {
            let bytes = Array(text.utf8)
            return String(SHA256.digest(of: bytes.span).hex.prefix(8))
        }
        func values(of names: Set<String>) -> String {
            rows.filter { names.contains($0.name) }.map { "\($0.name) \($0.pattern ?? "") \($0.value)\n" }.joined()
        }
        let parts = [
            digest(values(of: [SettingName.addressRuleKeyword, SettingName.addressPolicy.rawValue])),
            digest(values(of: Self.sharedLimitNames)), digest(values(of: [SettingName.originRuleKeyword])),
            digest(version),
        ]
        let text = parts.joined(separator: ".")
        engine.report(settings: text)
        core.clusterSettingsChanged(text)
    }

    /// Logs a change of this node's part in the cluster, and bodies of other nodes that it could not read.
    private func logNotice(_ notice: ClusterNotice) {
        switch notice {
        case .warning(let warning):
            logger.log(
                level: warning.needsOperator ? .error : .warning, "the cluster is impaired",
                metadata: ["reason": "\(warning)"])
        case .warningCleared(let warning):
            logger.notice("an impairment of the cluster is gone", metadata: ["reason": "\(warning)"])
        case .bodyReadFailed(let place, let reason, let isFirst):
            logger.log(
                level: isFirst ? .warning : .debug, "cannot read a body of another node",
                metadata: ["place": "\(place)", "reason": "\(reason)"])
        case .requestedBodyMissing(let place):
            logger.debug("another node asks for a body that is gone", metadata: ["place": "\(place)"])
        case .bodiesReleasedEarly:
            logger.warning(
                "bodies for other nodes are released early, so that these fetch the URLs again; raise spool-size, or free disk space"
            )
        }
    }

    /// Logs changes of the membership. Repeated failures to connect are one line.
    private func logEngineEvent(_ event: EngineEvent) {
        switch event {
        case .joined(let node, let members):
            lastLoggedFault = nil
            logger.notice("joined the cluster", metadata: ["node": "\(node)", "members": "\(members)"])
        case .left(let fault):
            guard fault != lastLoggedFault else { return }
            lastLoggedFault = fault
            logger.log(
                level: fault.needsOperator ? .error : .warning, "not a member of the cluster",
                metadata: ["reason": "\(fault)"])
        case .warning(let warning):
            guard activeLoggedWarnings.insert(warning).inserted else { return }
            logger.warning("the engine is less safe than it could be", metadata: ["reason": "\(warning)"])
        case .remedied(let warning):
            guard activeLoggedWarnings.remove(warning) != nil else { return }
            logger.notice("a shortcoming of the engine is gone", metadata: ["reason": "\(warning)"])
        case .messagesLost: logger.warning("the engine lost messages to this node; it asserts everything again")
        case .members, .wantsAnswered, .flightsGranted, .completionsAnswered, .cooled, .surveyed, .workWaits,
            .resultReceived, .unusableResult, .attemptAborted:
            break
        }
    }
}

extension ClusterMembership {
    /// Services of the core for its work as a node.
    func clusterServices(_ record: NodeRecord, brokerID: UInt64, start: MonotonicTime) -> ClusterServices {
        let keys = engine.keys
        return ClusterServices(
            flightKey: { keys.flightKey(identity: $0) }, originKey: { keys.originKey(name: $0) },
            address: gatewayAddress, broker: brokerID, members: memberCount, predecessor: record.read(), start: start)
    }
}

/// Membership of a broker in a cluster: it is one node of several.
public struct ClusterMembership: Sendable {
    /// Engine of the cluster.
    public let engine: EngineOptions
    /// Address at which the gateway of this node serves bodies to the others: `ADDRESS:PORT`, that of IPv6 in brackets.
    public let gatewayAddress: String
    /// Number of nodes in the settings.
    public let memberCount: Int
    /// Version of the program, which is compared with that of the other nodes.
    public var programVersion = ""

    public init(engine: EngineOptions, gatewayAddress: String, memberCount: Int) {
        self.engine = engine
        self.gatewayAddress = gatewayAddress
        self.memberCount = memberCount
    }
}

/// File of the runtime folder with the latest ID under which this node joined its cluster. The next process ends that
/// membership at once, where the engine would wait for the end of its lease.
struct NodeRecord {
    private let path: String

    init(runtimeFolder: String) { path = runtimeFolder + "/node" }

    /// Latest ID; nil without a file of this form.
    func read() -> NodeID? {
        guard let file = try? SmallFile.read(path, maximumBytes: 16) else { return nil }
        return NodeID(String(decoding: file.content, as: UTF8.self))
    }

    /// Replaces the file. If that fails, the next process waits for the lease.
    func write(_ node: NodeID) { SmallFile.replace(path, with: Array(node.description.utf8)) }
}
