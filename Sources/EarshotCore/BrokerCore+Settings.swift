public import EarshotWire

/// Settings and keys that change while the broker runs.
extension BrokerCore {
    /// Replaces all settings, at the start and after a reload of their files. Values set by clients are discarded.
    public mutating func replaceSettings(_ settings: Settings, now: MonotonicTime) {
        records.settings = settings
        settingsChanged(now: now)
    }

    mutating func settingChangeRequested(
        _ setting: SettingWords, by client: Handle<ClientSession>, now: MonotonicTime
    ) {
        do throws(SettingError) {
            let change = try SettingChange(words: setting.words)
            if case .setValue(let name, _) = change, name.isAppliedBySupervisor, !records.shellFeatures.isSupervised {
                throw SettingError(
                    "this broker runs without a supervisor that controls its workers; use `earshot serve`")
            }
            if case .setList(let name, _) = change {
                throw SettingError(
                    "\(name.rawValue) is read from the configuration only; change it there, and send SIGHUP to the bus")
            }
            try records.settings.applyChange(change, source: Settings.SourceName.clientSet)
            settingsChanged(now: now)
            // The supervisor is notified before the client, so a confirmed change outlives this broker.
            records.outbox.actions.append(.supervisor(.settingChanged(change)))
            replyToCurrentMessage(.message(.settingChanged(change.settingWords)), to: client)
        } catch {
            refuseMessage(of: client, code: "bad-setting", detail: error.description, .changeSetting(setting))
        }
    }

    /// Applies the settings. A worker receives them before any job that depends on them.
    private mutating func settingsChanged(now: MonotonicTime) {
        records.quotaUse.mayHaveOtherUsers = [.allowedUsers, .clientListenAddresses, .httpDoorAllowedUsers].contains {
            !records.settings[$0].isEmpty
        }
        limitsChanged(records.settings.coreLimits(from: records.limits), now: now)
        if records.shellFeatures.isCaching, let bytes = records.settings[.cacheSize] {
            records.outbox.actions.append(.cache(.setMaximumSize(bytes: bytes)))
        }
        if records.shellFeatures.isStoringDurableRequests, let bytes = records.settings[.durableSize] {
            records.outbox.actions.append(.durable(.setMaximumSize(bytes: bytes)))
        }
        let terms = records.settings.workerLimits(from: records.workerLimits)
        guard terms != records.workerLimits else { return }
        records.workerLimits = terms
        Workers.sendLimits(in: &records)
    }

    /// Applies changed limits. State above a lowered limit drains. O(origins and clients).
    public mutating func limitsChanged(_ limits: CoreLimits, now: MonotonicTime) {
        let before = self.limits
        self.limits = limits
        records.outcomes.limits = OutcomeStore.Limits(limits)
        records.originGovernor.limits = OriginGovernor.Limits(limits)
        records.workers.heartbeatLimits = WorkerFleet.HeartbeatLimits(limits)
        records.workerPools.limits = WorkerPools.Limits(limits)
        records.durables.limits = DurableBook.Limits(limits)
        Principals.quotaLimitsChanged(in: &records)
        if limits.originRules != before.originRules { Origins.applyRules(now: now, in: &records) }
        if limits.maximumBytesPerSecond != before.maximumBytesPerSecond || limits.originRules != before.originRules {
            Rates.limitsChanged(now: now, in: &records)
        }
        if limits.maximumCoolDownMilliseconds != before.maximumCoolDownMilliseconds {
            Origins.endCoolDownRefusals(in: &records)
        }
        if limits.idleCookieJarMilliseconds != before.idleCookieJarMilliseconds {
            Cookies.expireJars(now: now, in: &records)
        }
        if limits.durableRetentionMilliseconds != before.durableRetentionMilliseconds {
            Durable.resetExpiries(in: &records)
        }
    }

    /// Sets the proof of the gateway. The supervisor has sent it to both processes.
    public mutating func expectGateway(_ proof: GatewayProof) { records.shellFeatures.gatewayProof = proof }

    /// Handles a report about the HTTP door.
    public mutating func doorEventReceived(_ event: HTTPDoorEvent) {
        switch event {
        case .doorProof(let proof): records.shellFeatures.doorProof = proof
        case .listeningAddresses(let addresses):
            doorReport = addresses.isEmpty ? nil : HTTPDoorState(listeningAddresses: addresses)
        case .counts(let connections, let requests, let refused):
            if let addresses = doorReport?.listeningAddresses {
                doorReport = HTTPDoorState(
                    listeningAddresses: addresses, openConnectionCount: connections, requestCount: requests,
                    refusedRequestCount: refused)
            }
        }
    }

    /// Handles a change of the keys of the gateway: ends the sessions of keys that are no longer valid, and their
    /// requests. The gateway closes the connections of such keys itself, so this ends sessions that are away.
    ///
    /// - Parameter valid: principals of all valid keys of clients.
    public mutating func gatewayKeysChanged(_ valid: Set<PrincipalName>, now: MonotonicTime) {
        records.latestEventTime = now
        records.shellFeatures.validKeys = valid
        let revoked = records.clients.awaySessions.filter { Principals.isRevoked($0, in: &records) }
        for client in revoked { endSession(client, now: now) }
    }

    /// Makes each worker open the spool again, after another folder replaced it at the same path.
    public mutating func spoolFolderReplaced() { Workers.sendLimits(in: &records) }
}
