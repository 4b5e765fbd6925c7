internal import EarshotWire

/// Settings that change while the broker runs.
extension BrokerCore {
    /// Replaces all settings, at the start and after a reload of their files. Values set by clients are discarded.
    public mutating func settingsRead(_ settings: Settings, now: Tick) {
        self.settings = settings
        settingsChanged(now: now)
    }

    mutating func settingRequested(_ setting: SettingWords, by client: Handle<ClientSession>, now: Tick) {
        do throws(SettingError) {
            let change = try SettingChange(setting.words)
            if case .number(let name, _) = change, name.isOfSupervisor, !facilities.isSupervised {
                throw SettingError(
                    "this broker runs without a supervisor that controls its workers; use `earshot serve`")
            }
            if case .list(let name, _) = change {
                throw SettingError(
                    "\(name.rawValue) is read from the configuration only; change it there, and send SIGHUP to the bus")
            }
            try settings.apply(change, source: Settings.Source.set)
            settingsChanged(now: now)
            // The supervisor is notified before the client, so a confirmed change outlives this broker.
            actions.append(.supervisor(.settingChanged(change)))
            reply(.message(.changed(change.setting)), to: client)
        } catch {
            refuse(client, "bad-setting", error.description, .set(setting))
        }
    }

    /// Applies the settings. A worker receives them before any job that depends on them.
    private mutating func settingsChanged(now: Tick) {
        quotas.hasOthers = !settings[.users].isEmpty || !settings[.listen].isEmpty
        limitsChanged(settings.applied(to: limits), now: now)
        if facilities.isCaching, let bytes = settings[.cacheSize] { actions.append(.cache(.limit(bytes: bytes))) }
        if facilities.isKeeping, let bytes = settings[.durableSize] { actions.append(.durable(.limit(bytes: bytes))) }
        let terms = settings.applied(to: workerLimits)
        guard terms != workerLimits else { return }
        workerLimits = terms
        sayLimits()
    }

    /// Makes each worker open the spool again, after another folder replaced it at the same path.
    public mutating func spoolReplaced() { sayLimits() }

    private mutating func sayLimits() {
        for worker in workers.indices where workers[worker].phase != .joining { sayLimits(to: worker) }
    }

    /// Sends a worker its limits. A user's own worker decides its number of slots itself.
    mutating func sayLimits(to worker: Handle<WorkerSession>) {
        var terms = workerLimits
        if workers[worker].isOwn {
            terms.slots = nil
            // It may open any file for its work, unless it reads bodies of other nodes.
            let puller = pools.open(for: BodyPlace.scheme, of: PrincipalTable.administrator)
            if puller.map({ !workers[worker].pools.contains($0) }) ?? true { terms.sandbox = 1 }
        }
        if workers[worker].isRemote { terms = terms.withoutFiles }
        workers.told(slots: terms.slots, worker)
        actions.append(.worker(.send(workers[worker].id, .limits(terms))))
    }
}
