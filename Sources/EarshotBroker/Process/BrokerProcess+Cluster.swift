internal import EarshotCluster
internal import EarshotCore
internal import EarshotLoop
internal import LibCrypto
internal import Logging

/// The node's connection to the engine of its cluster.
extension BrokerProcess {
    /// Facility of the core for its work as a node.
    static func facility(of membership: ClusterMembership, start: Tick) -> ClusterFacility {
        let keys = membership.engine.keys
        return ClusterFacility(
            flightKey: { keys.flight($0) }, originKey: { keys.origin($0) }, address: membership.place,
            broker: randomNumber(), members: membership.members, start: start)
    }

    /// Gives the events of the engine to the core.
    func takeEngineEvents(now: Tick) {
        guard let engine else { return }
        engine.pass()
        for event in engine.takeEvents() {
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

    /// Reads the logins of the engine again. They apply to the next connection, so a new password costs no membership.
    func readEngine() {
        guard let engine, let read = options.readEngine else { return }
        do {
            let options = try read()
            engine.use(options.login, ofSentinels: options.sentinelLogin)
        } catch {
            logger.error(
                "cannot read the file of the cluster; the logins of the engine stay", metadata: ["error": "\(error)"])
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
        case .members, .wanted, .granted, .ended, .cooled, .surveyed, .workWaits, .result, .aborted: break
        }
    }
}
