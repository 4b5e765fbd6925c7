public import EarshotWire

/// Settings and keys that change while the broker runs.
extension BrokerCore {
    /// Replaces all settings, at the start and after a reload of their files. Values set by clients are discarded.
    public mutating func settingsRead(_ settings: Settings, now: Tick) {
        records.settings = settings
        settingsChanged(now: now)
    }

    mutating func settingRequested(_ setting: SettingWords, by client: Handle<ClientSession>, now: Tick) {
        do throws(SettingError) {
            let change = try SettingChange(setting.words)
            if case .number(let name, _) = change, name.isOfSupervisor, !records.features.isSupervised {
                throw SettingError(
                    "this broker runs without a supervisor that controls its workers; use `earshot serve`")
            }
            if case .list(let name, _) = change {
                throw SettingError(
                    "\(name.rawValue) is read from the configuration only; change it there, and send SIGHUP to the bus")
            }
            try records.settings.apply(change, source: Settings.Source.set)
            settingsChanged(now: now)
            // The supervisor is notified before the client, so a confirmed change outlives this broker.
            records.outbox.actions.append(.supervisor(.settingChanged(change)))
            reply(.message(.changed(change.setting)), to: client)
        } catch {
            refuse(client, "bad-setting", error.description, .set(setting))
        }
    }

    /// Applies the settings. A worker receives them before any job that depends on them.
    private mutating func settingsChanged(now: Tick) {
        records.quotas.hasOthers = [.users, .listen, .httpUsers].contains { !records.settings[$0].isEmpty }
        limitsChanged(records.settings.applied(to: records.limits), now: now)
        if records.features.isCaching, let bytes = records.settings[.cacheSize] {
            records.outbox.actions.append(.cache(.limit(bytes: bytes)))
        }
        if records.features.isKeeping, let bytes = records.settings[.durableSize] {
            records.outbox.actions.append(.durable(.limit(bytes: bytes)))
        }
        let terms = records.settings.applied(to: records.workerLimits)
        guard terms != records.workerLimits else { return }
        records.workerLimits = terms
        Workers.sendLimits(in: &records)
    }

    /// Applies changed limits. State above a lowered limit drains. O(origins and clients).
    public mutating func limitsChanged(_ limits: CoreLimits, now: Tick) {
        let before = self.limits
        self.limits = limits
        records.outcomes.limits = OutcomeStore.Limits(limits)
        records.governor.limits = OriginGovernor.Limits(limits)
        records.workers.limits = WorkerFleet.Limits(limits)
        records.pools.limits = WorkerPools.Limits(limits)
        records.durables.limits = DurableBook.Limits(limits)
        Principals.limitsChanged(in: &records)
        if limits.origins != before.origins { Origins.applyRules(now: now, in: &records) }
        if limits.rate != before.rate || limits.origins != before.origins {
            Rates.limitsChanged(now: now, in: &records)
        }
        if limits.coolDownMilliseconds != before.coolDownMilliseconds { Origins.endRefusals(in: &records) }
        if limits.cookieMilliseconds != before.cookieMilliseconds { Cookies.expireJars(now: now, in: &records) }
        if limits.durableMilliseconds != before.durableMilliseconds { Durable.resetExpiries(in: &records) }
    }

    /// Sets the proof of the gateway, which the supervisor has given to both.
    public mutating func expectGateway(_ proof: GatewayProof) { records.features.gatewayProof = proof }

    /// Handles a report about the HTTP door.
    public mutating func doorReported(_ event: DoorEvent) {
        switch event {
        case .proof(let proof): records.features.doorProof = proof
        case .listening(let addresses): door = addresses.isEmpty ? nil : DoorReport(addresses: addresses)
        case .counts(let connections, let requests, let refused):
            if let addresses = door?.addresses {
                door = DoorReport(
                    addresses: addresses, connections: connections, requests: requests, refused: refused)
            }
        }
    }

    /// Handles a change of the keys of the gateway: ends the sessions of those that are no longer valid, and their requests. The
    /// gateway closes their connections itself, so this ends those that are away.
    ///
    /// - Parameter valid: principals of all valid keys of clients.
    public mutating func keysRead(_ valid: Set<PrincipalName>, now: Tick) {
        records.clock = now
        records.features.validKeys = valid
        let revoked = records.clients.awaySessions.filter { Principals.isRevoked($0, in: &records) }
        for client in revoked { endSession(client, now: now) }
    }

    /// Makes each worker open the spool again, after another folder replaced it at the same path.
    public mutating func spoolReplaced() { Workers.sendLimits(in: &records) }
}
