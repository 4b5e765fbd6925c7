internal import EarshotCore
internal import EarshotLoop
internal import Glibc

/// Settings that change while all runs: the files read again, what clients set, the size of the pool.
extension Supervisor {
    /// SIGHUP: what the files say now takes the place of what they said, and of what was set. A file that is wrong
    /// changes nothing.
    func readSettings() {
        guard phase == .serving else { return }
        reloadBegan()
        defer { tellService() }
        do throws(Complaint) {
            settings = try plan.configuration.read()
        } catch {
            Complaint.say("the settings stay as they are: \(error)")
            return
        }
        tellSettings()
        fitPool()
        boundMemory()
        Complaint.say("the settings were read again")
    }

    /// Tells the broker all of them, unless what it was told last still waits for it.
    func tellSettings() {
        guard let channel else { return }
        owesSettings = channel.hasBacklog
        guard !owesSettings else { return }
        unansweredSettings += 1
        channel.send(settings.lines + [Settings.end])
    }

    /// A line of the broker: how it is, the answer to settings, or what a client has set.
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
            if case .number(.workerMemory, _) = change { boundMemory() }
        } catch {
            // The broker is of the same build, and has taken it.
            Complaint.say("the broker tells of a setting that is none: \(error)")
        }
    }

    // MARK: The pool

    /// Bounds the address space of all workers by what is set now. One that needs more ends, and it alone.
    func boundMemory() {
        for post in posts where post.role == .worker { if let child = post.child { boundMemory(of: child) } }
    }

    /// Bounds one worker's address space. The bound is against faults, not against a worker that wants to be rid of it.
    func boundMemory(of child: ChildProcess) {
        guard let bytes = settings[.workerMemory] else { return }
        do throws(SystemError) {
            try ResourceLimits.limitMemory(of: child.pid, bytes: bytes)
        } catch {
            Complaint.say("the memory of worker \(child.pid) has no bound: \(error)")
        }
    }

    /// Makes the pool as large as is set. Workers that are too many finish what they run; new ones wait while those are
    /// so many that all together would be more than there may be.
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
            // It gives up what it runs and says so: that runs elsewhere, and is no death.
            child.send(SIGTERM)
            post.timer = loop.setTimer(after: Self.drainReserve) { child.send(SIGKILL) }
        }
    }

    /// A worker that was too many has ended.
    func forget(_ post: Post) {
        posts.removeAll { $0 === post }
        fitPool()
        tellService()
    }
}
