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
        defer { tellService() }
        let listeners = settings[.listen]
        let door = doorArguments
        do throws(Complaint) {
            let read = try plan.configuration.read()
            let hook = try plan.configuration.hook()
            settings = read
            hooks.change(hook)
        } catch {
            plan.log.write(.error, "invalid configuration, the settings stay as they are: \(error)")
            return
        }
        tellSettings()
        fitPool()
        fitGateway(listened: listeners)
        fitDoor(was: door)
        boundMemory()
        plan.log.write(.notice, "the settings were read again")
    }

    /// Sends the settings to the broker, or waits until its channel has room.
    func tellSettings() {
        guard let channel else { return }
        owesSettings = channel.hasBacklog
        guard !owesSettings else { return }
        unansweredSettings += 1
        channel.send([hooks.word] + settings.lines + [Settings.end])
    }

    /// Handles a line of the broker: a health check, an acknowledgement of settings, or a change by a client.
    func brokerSaid(_ line: String) {
        if line == SupervisorWord.alive {
            brokerLives()
            return
        }
        if line.hasPrefix(SupervisorWord.workers + " ") {
            workersTakenIn = Int(line.dropFirst(SupervisorWord.workers.utf8.count + 1)) ?? 0
            tellService()
            return
        }
        if line.hasPrefix(SupervisorWord.killWorker + " ") {
            let pid = Int32(line.dropFirst(SupervisorWord.killWorker.utf8.count + 1))
            for post in posts where post.role.isWorker && post.child?.pid == pid { post.child?.send(SIGKILL) }
            return
        }
        if line.hasPrefix(EndedRequest.word + " ") {
            if let ended = EndedRequest(line: line) { hooks.add(ended) }
            return
        }
        if line == Settings.taken {
            unansweredSettings -= 1
            tellService()
            return
        }
        guard unansweredSettings == 0, !owesSettings else { return }
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
        for post in posts where post.role == .worker { if let child = post.child { boundMemory(of: child) } }
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
        let pool = posts.filter { $0.role == .worker }
        let staying = pool.filter { !$0.isLeaving }
        for post in staying.dropFirst(wanted) { retire(post) }
        let room = SettingName.workers.range.upperBound - pool.count
        for _ in 0..<max(0, min(wanted - staying.count, room)) {
            let post = Post(.worker)
            posts.append(post)
            restart(post)
        }
    }

    private func retire(_ post: Post) {
        post.isLeaving = true
        guard let child = post.child else {
            posts.removeAll { $0 === post }
            return
        }
        child.send(SIGTERM)
        post.timer = loop.setTimer(after: drainTime) { [unowned self] in
            // The second signal makes the worker return its transfers to the broker, which restarts them elsewhere.
            child.send(SIGTERM)
            post.timer = loop.setTimer(after: Self.drainReserve) { child.send(SIGKILL) }
        }
    }

    /// Removes the post of a surplus worker, or of a gateway with other addresses, that has ended.
    func forget(_ post: Post) {
        posts.removeAll { $0 === post }
        fitPool()
        addGateway()
        addDoor()
        tellService()
    }
}
