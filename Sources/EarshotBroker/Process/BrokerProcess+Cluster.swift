internal import EarshotCluster
internal import EarshotCore
internal import EarshotLoop
internal import LibCrypto
internal import Logging

/// The node's connection to the engine of its cluster.
extension BrokerProcess {
    /// Facility of the core for its work as a node.
    static func facility(of membership: ClusterMembership, _ record: NodeRecord, start: Tick) -> ClusterFacility {
        let keys = membership.engine.keys
        return ClusterFacility(
            flightKey: { keys.flight($0) }, originKey: { keys.origin($0) }, address: membership.place,
            broker: randomNumber(), members: membership.members, predecessor: record.read(), start: start)
    }

    /// Gives the events of the engine to the core.
    func takeEngineEvents(now: Tick) {
        guard let engine else { return }
        engine.pass()
        for event in engine.takeEvents() {
            if case .joined(let node, _) = event { NodeRecord(runtimeFolder: options.runtimeFolder).write(node) }
            log(event)
            core.engineSaid(event, now: now)
        }
    }

    /// Sends the calls since the last answer. A call of many flights costs the engine a fraction of many calls, and a lone
    /// request waits for no answer.
    func callEngine(now: Tick) {
        guard let engine else { return }
        if let members = core.takeUncoordinatedStart() {
            logger.warning("fetches without the engine of the cluster", metadata: ["limits-divided-by": "\(members)"])
        }
        core.engineIsBusy(engine.isBusy)
        guard !engine.isBusy else { return }
        engine.submit(core.takeEngineCalls(now: now))
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
        case .members, .wanted, .granted, .ended, .cooled, .surveyed, .workWaits, .result, .aborted: break
        }
    }
}
