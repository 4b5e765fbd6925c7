internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// Changes of settings at run time: reload, changes by clients, size of the pool.
extension Supervisor {
    /// Reloads the configuration after SIGHUP. It replaces all values, including those set by clients. An invalid file
    /// changes nothing.
    func readSettings() {
        guard phase == .serving else { return }
        announceReload()
        defer { notifyService() }
        let listeners = settings[.clientListenAddresses]
        let door = doorArguments
        do throws(CommandError) {
            let read = try plan.configuration.readSettings()
            let hook = try plan.configuration.hookProgram()
            settings = read
            hooks.replaceProgram(hook)
        } catch {
            plan.log.write(.error, "invalid configuration, the settings stay as they are: \(error)")
            return
        }
        sendSettings()
        resizePool()
        reconfigureGateway(previousAddresses: listeners)
        reconfigureDoor(previousArguments: door)
        limitWorkerMemory()
        plan.log.write(.notice, "the settings were read again")
    }

    /// Sends the settings to the broker, or waits until its channel has room.
    func sendSettings() {
        guard let brokerChannel else { return }
        hasUnsentSettings = brokerChannel.hasBacklog
        guard !hasUnsentSettings else { return }
        unansweredSettings += 1
        brokerChannel.send([hooks.reportingCommand] + settings.supervisorLines + [Settings.endOfSettingsLine])
    }

    /// Handles a line of the broker: a health check, the number of workers, a worker to kill, an ended request, an
    /// acknowledgement of settings, or a change by a client.
    func handleBrokerLine(_ line: String) {
        if line == SupervisorCommand.healthCheck {
            feedWatchdog()
            return
        }
        if line.hasPrefix(SupervisorCommand.readyWorkerCount + " ") {
            acceptingWorkerCount = Int(line.dropFirst(SupervisorCommand.readyWorkerCount.utf8.count + 1)) ?? 0
            notifyService()
            return
        }
        if line.hasPrefix(SupervisorCommand.killWorker + " ") {
            let pid = Int32(line.dropFirst(SupervisorCommand.killWorker.utf8.count + 1))
            for slot in childSlots where slot.role.isWorker && slot.child?.pid == pid {
                slot.child?.sendSignal(SIGKILL)
            }
            return
        }
        if line.hasPrefix(EndedRequest.lineVerb + " ") {
            if let ended = EndedRequest(line: line) { hooks.enqueueRun(for: ended) }
            return
        }
        if line == Settings.confirmationLine {
            unansweredSettings -= 1
            notifyService()
            return
        }
        guard unansweredSettings == 0, !hasUnsentSettings else { return }
        do throws(SettingError) {
            let change = try SettingChange(words: line.split(separator: " ").map { String($0) })
            try settings.applyChange(change, source: Settings.SourceName.clientSet)
            if case .setValue(.workers, _) = change { resizePool() }
            if case .setValue(.httpWait, _) = change { sendDoorWait() }
            if case .setValue(.workerMemory, _) = change { limitWorkerMemory() }
        } catch {
            // Impossible for a broker of the same build, which has validated the change.
            plan.log.write(.error, "the broker reported an invalid setting: \(error)")
        }
    }

    // MARK: The pool

    /// Limits the address space of all workers. A worker that exceeds it dies alone.
    func limitWorkerMemory() {
        for slot in childSlots where slot.role == .worker { if let child = slot.child { limitMemory(of: child) } }
    }

    /// Limits the address space of one worker. The limit contains faults; it is no security boundary.
    func limitMemory(of child: ChildProcess) {
        guard let bytes = settings[.workerMemory] else { return }
        do throws(SystemError) {
            try ResourceLimits.limitMemory(of: child.pid, bytes: bytes)
        } catch {
            plan.log.write(.warning, "cannot limit the memory of worker \(child.pid): \(error)")
        }
    }

    /// Adjusts the pool to its configured size. Surplus workers drain. New workers start only while the total,
    /// including draining ones, is within the maximum.
    func resizePool() {
        guard phase == .serving else { return }
        let wanted = settings[.workers] ?? 1
        let pool = childSlots.filter { $0.role == .worker }
        let staying = pool.filter { !$0.isRetiring }
        for slot in staying.dropFirst(wanted) { retire(slot) }
        let room = SettingName.workers.storedValueRange.upperBound - pool.count
        for _ in 0..<max(0, min(wanted - staying.count, room)) {
            let slot = ChildSlot(.worker)
            childSlots.append(slot)
            restart(slot)
        }
    }

    private func retire(_ slot: ChildSlot) {
        slot.isRetiring = true
        guard let child = slot.child else {
            childSlots.removeAll { $0 === slot }
            return
        }
        child.sendSignal(SIGTERM)
        slot.killTimer = loop.setTimer(after: drainTime) { [unowned self] in
            // The second signal makes the worker return its transfers to the broker, which restarts them elsewhere.
            child.sendSignal(SIGTERM)
            slot.killTimer = loop.setTimer(after: Self.killDelayAfterDrain) { child.sendSignal(SIGKILL) }
        }
    }

    /// Removes the slot of a surplus worker, or of a gateway with other addresses, that has ended.
    func removeSlot(_ slot: ChildSlot) {
        childSlots.removeAll { $0 === slot }
        resizePool()
        addGateway()
        addDoor()
        notifyService()
    }
}
