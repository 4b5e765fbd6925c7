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
        reloadBegan()
        defer { notifyService() }
        let listeners = settings[.listen]
        let door = doorArguments
        do throws(CommandError) {
            let read = try plan.configuration.read()
            let hook = try plan.configuration.hook()
            settings = read
            hooks.change(hook)
        } catch {
            plan.log.write(.error, "invalid configuration, the settings stay as they are: \(error)")
            return
        }
        sendSettings()
        fitPool()
        fitGateway(listened: listeners)
        fitDoor(was: door)
        boundMemory()
        plan.log.write(.notice, "the settings were read again")
    }

    /// Sends the settings to the broker, or waits until its channel has room.
    func sendSettings() {
        guard let channel else { return }
        hasUnsentSettings = channel.hasBacklog
        guard !hasUnsentSettings else { return }
        unansweredSettings += 1
        channel.send([hooks.word] + settings.lines + [Settings.end])
    }

    /// Handles a line of the broker: a health check, an acknowledgement of settings, or a change by a client.
    func receivedFromBroker(_ line: String) {
        if line == SupervisorCommand.alive {
            brokerLives()
            return
        }
        if line.hasPrefix(SupervisorCommand.workers + " ") {
            acceptingWorkers = Int(line.dropFirst(SupervisorCommand.workers.utf8.count + 1)) ?? 0
            notifyService()
            return
        }
        if line.hasPrefix(SupervisorCommand.killWorker + " ") {
            let pid = Int32(line.dropFirst(SupervisorCommand.killWorker.utf8.count + 1))
            for slot in childSlots where slot.role.isWorker && slot.child?.pid == pid { slot.child?.send(SIGKILL) }
            return
        }
        if line.hasPrefix(EndedRequest.word + " ") {
            if let ended = EndedRequest(line: line) { hooks.add(ended) }
            return
        }
        if line == Settings.confirmation {
            unansweredSettings -= 1
            notifyService()
            return
        }
        guard unansweredSettings == 0, !hasUnsentSettings else { return }
        do throws(SettingError) {
            let change = try SettingChange(line.split(separator: " ").map { String($0) })
            try settings.apply(change, source: Settings.Source.set)
            if case .number(.workers, _) = change { fitPool() }
            if case .number(.httpWait, _) = change { sendDoorWait() }
            if case .number(.workerMemory, _) = change { boundMemory() }
        } catch {
            // Impossible for a broker of the same build, which has validated the change.
            plan.log.write(.error, "the broker reported an invalid setting: \(error)")
        }
    }

    // MARK: The pool

    /// Limits the address space of all workers. A worker that exceeds it dies alone.
    func boundMemory() {
        for slot in childSlots where slot.role == .worker { if let child = slot.child { boundMemory(of: child) } }
    }

    /// Limits the address space of one worker. The limit contains faults; it is no security boundary.
    func boundMemory(of child: ChildProcess) {
        guard let bytes = settings[.workerMemory] else { return }
        do throws(SystemError) {
            try ResourceLimits.limitMemory(of: child.pid, bytes: bytes)
        } catch {
            plan.log.write(.warning, "cannot limit the memory of worker \(child.pid): \(error)")
        }
    }

    /// Adjusts the pool to its configured size. Surplus workers drain. New workers start only while the total,
    /// including draining ones, is within the maximum.
    func fitPool() {
        guard phase == .serving else { return }
        let wanted = settings[.workers] ?? 1
        let pool = childSlots.filter { $0.role == .worker }
        let staying = pool.filter { !$0.isLeaving }
        for slot in staying.dropFirst(wanted) { retire(slot) }
        let room = SettingName.workers.range.upperBound - pool.count
        for _ in 0..<max(0, min(wanted - staying.count, room)) {
            let slot = ChildSlot(.worker)
            childSlots.append(slot)
            restart(slot)
        }
    }

    private func retire(_ slot: ChildSlot) {
        slot.isLeaving = true
        guard let child = slot.child else {
            childSlots.removeAll { $0 === slot }
            return
        }
        child.send(SIGTERM)
        slot.timer = loop.setTimer(after: drainTime) { [unowned self] in
            // The second signal makes the worker return its transfers to the broker, which restarts them elsewhere.
            child.send(SIGTERM)
            slot.timer = loop.setTimer(after: Self.drainReserve) { child.send(SIGKILL) }
        }
    }

    /// Removes the post of a surplus worker, or of a gateway with other addresses, that has ended.
    func forget(_ slot: ChildSlot) {
        childSlots.removeAll { $0 === slot }
        fitPool()
        addGateway()
        addDoor()
        notifyService()
    }
}
