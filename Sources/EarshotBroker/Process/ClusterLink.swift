public import EarshotCluster
internal import EarshotCore
internal import EarshotLoop
internal import LibCrypto
internal import Logging

/// The node's connection to the engine of its cluster, and attempts to connect to the other nodes.
final class ClusterLink {
    /// Settings of the load on origins, and of the bodies that other nodes read.
    private static let sharedLimits: Set<String> = Set(
        [
            SettingName.originLimit, .originSpacing, .http2, .coolDown, .maxRatio, .pageBytes, .shareBetweenUsers,
        ].map(\.rawValue))

    private let engine: EngineClient
    private let probes: PeerProbes
    private let record: NodeRecord
    private let version: String
    private let logger: Logger
    /// Latest logged reason for which this node is no member.
    private var loggedFault: EngineFault?
    /// Warnings about the engine in the log that have not ended.
    private var loggedWarnings: Set<EngineWarning> = []

    init(_ membership: ClusterMembership, _ record: NodeRecord, on loop: EventLoop, logger: Logger) {
        engine = EngineClient(membership.engine, on: loop)
        probes = PeerProbes(on: loop)
        version = membership.version
        self.record = record
        self.logger = logger
    }

    /// Whether no event waits.
    var isQuiet: Bool { engine.isQuiet }

    func start() { engine.start() }

    func stop() { engine.stop() }

    /// Gives the events of the engine to the core.
    func takeEvents(into core: inout BrokerCore, now: Tick) {
        engine.pass()
        for event in engine.takeEvents() {
            if case .joined(let node, _) = event { record.write(node) }
            log(event)
            core.received(event, now: now)
        }
        for address in core.takeClusterProbes() { probes.start(address) }
        for (address, failure) in probes.takeResults() { core.clusterProbed(address, failure: failure, now: now) }
    }

    /// Sends the calls since the last answer. A call of many flights costs the engine a fraction of many calls, and a lone
    /// request waits for no answer.
    func call(for core: inout BrokerCore, now: Tick) {
        if let members = core.takeUncoordinatedStart() {
            logger.warning("fetches without the engine of the cluster", metadata: ["limits-divided-by": "\(members)"])
        }
        let notices = core.takeClusterNotices()
        for notice in notices { log(notice) }
        if !notices.isEmpty { engine.report(unreadable: core.unreadableNodes) }
        core.engineIsBusy(engine.isBusy)
        guard !engine.isBusy else { return }
        engine.submit(core.takeEngineCalls(now: now))
    }

    /// Reads the logins of the engine again. They apply to the next connection, so a new password costs no membership.
    func readLogins(_ read: () throws -> EngineOptions) {
        do {
            let options = try read()
            engine.use(options.login, ofSentinels: options.sentinelLogin)
        } catch {
            logger.error(
                "cannot read the file of the cluster; the logins of the engine stay", metadata: ["error": "\(error)"])
        }
    }

    /// Tells the other nodes digests of the settings that should be equal everywhere: the address policy, limits, rules
    /// for origins, and the version.
    func describeSettings(of core: inout BrokerCore) {
        let rows = core.settings.rows
        func digest(_ text: String) -> String {
            let bytes = Array(text.utf8)
            return String(SHA256.digest(of: bytes.span).hex.prefix(8))
        }
        func values(of names: Set<String>) -> String {
            rows.filter { names.contains($0.name) }.map { "\($0.name) \($0.pattern ?? "") \($0.value)\n" }.joined()
        }
        let parts = [
            digest(values(of: [SettingName.address, SettingName.addressPolicy.rawValue])),
            digest(values(of: Self.sharedLimits)), digest(values(of: [SettingName.rule])), digest(version),
        ]
        let text = parts.joined(separator: ".")
        engine.report(settings: text)
        core.clusterSettingsChanged(text)
    }

    /// Settings of the load on origins, and of the bodies that other nodes read.
    /// Logs a change of this node's part in the cluster, and bodies of other nodes that it could not read.
    private func log(_ notice: ClusterNotice) {
        switch notice {
        case .warning(let warning):
            logger.log(
                level: warning.needsOperator ? .error : .warning, "the cluster is impaired",
                metadata: ["reason": "\(warning)"])
        case .remedied(let warning):
            logger.notice("an impairment of the cluster is gone", metadata: ["reason": "\(warning)"])
        case .missedBody(let place, let reason, let isFirst):
            logger.log(
                level: isFirst ? .warning : .debug, "cannot read a body of another node",
                metadata: ["place": "\(place)", "reason": "\(reason)"])
        case .lackedBody(let place):
            logger.debug("another node asks for a body that is gone", metadata: ["place": "\(place)"])
        case .releasedBodies:
            logger.warning(
                "bodies for other nodes are released early, so that these fetch the URLs again; raise spool-size, or free disk space"
            )
        }
    }

    /// Logs changes of the membership. Repeated failures to connect are one line.
    private func log(_ event: EngineEvent) {
        switch event {
        case .joined(let node, let members):
            loggedFault = nil
            logger.notice("joined the cluster", metadata: ["node": "\(node)", "members": "\(members)"])
        case .left(let fault):
            guard fault != loggedFault else { return }
            loggedFault = fault
            logger.log(
                level: fault.needsOperator ? .error : .warning, "not a member of the cluster",
                metadata: ["reason": "\(fault)"])
        case .warning(let warning):
            guard loggedWarnings.insert(warning).inserted else { return }
            logger.warning("the engine is less safe than it could be", metadata: ["reason": "\(warning)"])
        case .remedied(let warning):
            guard loggedWarnings.remove(warning) != nil else { return }
            logger.notice("a shortcoming of the engine is gone", metadata: ["reason": "\(warning)"])
        case .messagesLost: logger.warning("the engine lost messages to this node; it asserts everything again")
        case .members, .wanted, .granted, .ended, .cooled, .surveyed, .workWaits, .result, .unusable, .aborted: break
        }
    }
}

extension ClusterMembership {
    /// Facility of the core for its work as a node.
    func services(_ record: NodeRecord, broker: UInt64, start: Tick) -> ClusterServices {
        let keys = engine.keys
        return ClusterServices(
            flightKey: { keys.flight($0) }, originKey: { keys.origin($0) }, address: place, broker: broker,
            members: members, predecessor: record.read(), start: start)
    }
}

/// Membership of a broker in a cluster: it is one node of several.
public struct ClusterMembership: Sendable {
    /// Engine of the cluster.
    public let engine: EngineOptions
    /// Address at which the gateway of this node serves bodies to the others: `ADDRESS:PORT`, that of IPv6 in brackets.
    public let place: String
    /// Number of nodes in the settings.
    public let members: Int
    /// Version of the program, which is compared with that of the other nodes.
    public var version = ""

    public init(engine: EngineOptions, place: String, members: Int) {
        self.engine = engine
        self.place = place
        self.members = members
    }
}

/// File of the runtime folder with the latest ID under which this node joined its cluster. The next process ends that
/// membership at once, where the engine would wait for the end of its lease.
struct NodeRecord {
    private let path: String

    init(runtimeFolder: String) { path = runtimeFolder + "/node" }

    /// Latest ID; nil without a file of this form.
    func read() -> NodeID? {
        guard let file = try? SmallFile.read(path, most: 16) else { return nil }
        return NodeID(String(decoding: file.bytes, as: UTF8.self))
    }

    /// Replaces the file. If that fails, the next process waits for the lease.
    func write(_ node: NodeID) { SmallFile.replace(path, with: Array(node.description.utf8)) }
}
