import EarshotWire
import Testing

@testable import EarshotCore

/// Isolation: flights that lost two workers run alone, and only a flight that kills workers alone is poisonous.
struct IsolationTests {
    private var rig = CoreRig()

    @Test mutating func `two workers killed at once do not make their flight poisonous`() {
        let a = rig.client(1)
        _ = rig.worker(1)
        _ = rig.worker(2)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        let first = holder()
        rig.pass { $0.core.workerLost(first, now: $0.now) }
        let second = holder()
        #expect(second != first)
        rig.pass { $0.core.workerLost(second, now: $0.now) }
        #expect(rig.terminals(for: a) == [])
        rig.pass { _ = $0.worker(3) }
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: WorkerID(rawValue: 3)) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `workers that are killed from outside make no flight a suspect, however often`() {
        let a = rig.client(1)
        _ = rig.worker(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        for number in 1...20 as ClosedRange<UInt64> {
            #expect(rig.jobs.count == 1)
            let worker = WorkerID(rawValue: number)
            rig.pass { rig in
                rig.core.workerLost(worker, end: .killedFromOutsideExample, now: rig.now)
                _ = rig.worker(number + 1)
            }
        }
        #expect(rig.terminals(for: a) == [])
        let job = rig.jobs[0]
        rig.pass { $0.done(job, by: WorkerID(rawValue: 21)) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test(
        arguments: [
            WorkerExit(pid: 1, terminatingSignal: 11, wasKilledForMemory: false, wasKilledByBus: false),
            WorkerExit(pid: 1, terminatingSignal: 9, wasKilledForMemory: true, wasKilledByBus: false),
            WorkerExit(pid: 1, terminatingSignal: 9, wasKilledForMemory: false, wasKilledByBus: true),
            WorkerExit(pid: 1, terminatingSignal: nil, wasKilledForMemory: false, wasKilledByBus: false),
        ])
    func `a crash, a kill for lack of memory and a kill of a hanging worker are held against the flight`(
        end: WorkerExit
    ) {
        var rig = CoreRig()
        let a = rig.client(1)
        _ = rig.worker(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        var ends: [String] = []
        for number in 1...20 as ClosedRange<UInt64> where ends.isEmpty {
            let worker = WorkerID(rawValue: number)
            rig.pass { rig in
                rig.core.workerLost(worker, end: end, now: rig.now)
                _ = rig.worker(number + 1)
            }
            ends = rig.terminals(for: a)
        }
        #expect(ends == ["h 1 poisonous"])
        #expect(WorkerExit(supervisorLine: end.supervisorLine) == end)
    }

    @Test mutating func `a worker whose end is not explained yet gets no jobs, and keeps its flights`() {
        rig.core.shellFeatures.isSupervised = true
        let a = rig.client(1)
        let first = rig.worker(1)
        rig.pass { $0.fetch("h", "1", "http://h/1", by: a) }
        #expect(rig.core.awaitsProcessEnd(of: first) && !rig.core.awaitsProcessEnd(of: WorkerID(rawValue: 7)))
        rig.pass { $0.fetch("h", "2", "http://h/2", by: a) }
        #expect(rig.jobs.isEmpty)
        rig.pass { rig in
            rig.core.workerLost(first, end: .killedFromOutsideExample, now: rig.now)
            _ = rig.worker(2)
        }
        #expect(rig.jobs.count == 2)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `after one death all flights run again at once`() {
        let a = rig.client(1)
        let first = rig.worker(1)
        rig.pass { rig in for n in 1...5 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        rig.pass { rig in
            rig.core.workerLost(first, now: rig.now)
            _ = rig.worker(2)
        }
        #expect(rig.jobs.count == 5)
    }

    @Test mutating func `of 20 flights only the one that kills workers is poisonous`() {
        let (ends, deaths) = runBeside(killer: "http://h13/", afterMilliseconds: 0, healthyMilliseconds: 20)
        #expect(ends.count { $0.hasSuffix(" 200") } == 19)
        #expect(ends.filter { !$0.hasSuffix(" 200") } == ["h 13 poisonous"])
        #expect(deaths == 4)
    }

    @Test mutating func `a flight that kills late is found while long flights run beside it`() {
        let (ends, deaths) = runBeside(killer: "http://h13/", afterMilliseconds: 150, healthyMilliseconds: 5_000)
        #expect(ends.count { $0.hasSuffix(" 200") } == 19)
        #expect(ends.filter { !$0.hasSuffix(" 200") } == ["h 13 poisonous"])
        #expect(deaths <= 7)
    }

    @Test mutating func `suspects run one by one, each until it ends or its worker answers after the isolation`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let last = loseTwoWorkers()
        #expect(rig.jobs.count == 1)
        let job = rig.jobs[0]
        let waiting = (1...3).count { why("\($0)", by: a).contains(#""waits-for":"isolation""#) }
        #expect(waiting == 2)
        rig.pass { $0.fetch("h", "4", "http://h4/", by: a) }
        #expect(rig.jobs.isEmpty, "an only worker isolates before it does other work")
        rig.pass { $0.done(job, by: last) }
        #expect(rig.jobs.count == 1)
        rig.wait(milliseconds: 99)
        #expect(rig.actions.isEmpty)
        rig.wait(milliseconds: 1)
        #expect(isPinged(last) && rig.jobs.isEmpty, "a worker that hangs clears no suspect")
        // The PONG clears a slow suspect, and its worker starts the last one beside it.
        rig.pass { $0.pong(by: last) }
        #expect(rig.jobs.count == 1)
        #expect(rig.jobs[0].url != "http://h4/")
        rig.wait(milliseconds: 100)
        rig.pass { $0.pong(by: last) }
        #expect(rig.jobs.map(\.url) == ["http://h4/"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a flight that hangs its worker while it runs alone is poisonous, and no other`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        var worker = loseTwoWorkers()
        var ends: [String] = []
        for number in 10...20 as ClosedRange<UInt64> where ends.count < 3 {
            guard let job = rig.jobs.first else { break }
            guard job.url == "http://h2/" else {
                rig.pass { $0.done(job, by: worker) }
                ends += rig.terminals(for: a)
                continue
            }
            // The isolation takes 100 ms the first time, 200 ms the second.
            rig.wait(milliseconds: 200)
            #expect(isPinged(worker))
            rig.wait(milliseconds: rig.core.limits.pingTimeoutMilliseconds)
            #expect(rig.actions.contains { if case .worker(.kill(worker)) = $0 { true } else { false } })
            let hanging = worker
            rig.pass { rig in
                rig.core.workerLost(hanging, now: rig.now)
                worker = rig.worker(number)
            }
            ends += rig.terminals(for: a)
        }
        #expect(ends.sorted() == ["h 1 200", "h 2 poisonous", "h 3 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `other workers do other work meanwhile`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let suspect = loseTwoWorkers()
        rig.pass { rig in
            _ = rig.worker(4)
            rig.fetch("h", "4", "http://h4/", by: a)
            rig.fetch("h", "5", "http://h5/", by: a)
        }
        #expect(starts.allSatisfy { $0.worker != suspect })
        #expect(starts.map(\.url).sorted() == ["http://h4/", "http://h5/"])
    }

    @Test mutating func `a suspect that finds no empty worker in time runs with others`() {
        let a = rig.client(1)
        rig.pass { $0.fetch("h", "1", "http://h1/", by: a) }
        let first = rig.worker(1)
        rig.pass()
        _ = rig.worker(2)
        rig.pass { $0.core.workerLost(first, now: $0.now) }
        _ = rig.worker(3)
        rig.pass { rig in for n in 2...6 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        #expect(Set(starts.map(\.worker)).count == 2)
        rig.pass { $0.core.workerLost(WorkerID(rawValue: 2), now: $0.now) }
        #expect(!rig.jobs.map(\.url).contains("http://h1/"))
        rig.wait(milliseconds: rig.core.limits.maximumSuspectWaitMilliseconds)
        #expect(rig.jobs.map(\.url).contains("http://h1/"))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a flight that always kills late is poisonous after a bounded number of deaths`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        var deaths: UInt64 = 0
        while rig.core.ledger.requests.pending > 0, deaths < 20 {
            deaths += 1
            rig.pass { _ = $0.worker(deaths) }
            for _ in 0..<80 {
                rig.pong(by: WorkerID(rawValue: deaths))
                rig.wait(milliseconds: 1_000)
            }
            rig.pass { $0.core.workerLost(WorkerID(rawValue: deaths), now: $0.now) }
        }
        #expect(deaths == UInt64(rig.core.limits.maximumWorkerDeathsPerFlight))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a worker that says anything but PONG after its isolation is alive`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let last = loseTwoWorkers()
        let job = rig.jobs[0]
        rig.wait(milliseconds: 100)
        #expect(isPinged(last))
        rig.wait(milliseconds: 1)
        rig.core.workerMessageReceived(
            .progress(job.attempt, received: 1, total: nil, part: nil), body: nil, from: last, now: rig.now)
        rig.wait(milliseconds: rig.core.limits.pingTimeoutMilliseconds)
        #expect(rig.jobs.count == 1, "the other one has its turn")
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a suspect that a leaving worker did not take stays a suspect`() {
        let a = rig.client(1)
        rig.pass { rig in for n in 1...2 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let third = loseTwoWorkers()
        let job = rig.jobs[0]
        _ = rig.worker(4)
        rig.pass { $0.failed(job, "worker-lost", by: third) }
        #expect(rig.jobs.count == 1, "one of the two, alone")
        #expect(why("1", by: a).contains("isolation") != why("2", by: a).contains("isolation"))
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the last suspect of a scheme without workers ends with its removal`() {
        let a = rig.client(1)
        for number in 1...2 as ClosedRange<UInt64> {
            rig.pass { _ = $0.worker(number, schemes: ["x"]) }
            if number == 1 { rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "x:\(n)", by: a) } } }
            rig.pass { $0.core.workerLost(WorkerID(rawValue: number), now: $0.now) }
        }
        rig.pass { $0.remove("h", by: a) }
        rig.wait(milliseconds: rig.core.limits.emptyPoolGraceMilliseconds)
        #expect(rig.core.ledger.requests.pending == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the end of a quarantine serves each scheme of its worker in the same pass`() {
        let a = rig.client(1)
        for number in 1...2 as ClosedRange<UInt64> {
            rig.pass { _ = $0.worker(number, schemes: ["x", "y"]) }
            if number == 1 { rig.pass { $0.fetch("h", "y", "y:1", by: a) } }
            rig.pass { $0.core.workerLost(WorkerID(rawValue: number), now: $0.now) }
        }
        rig.pass { _ = $0.worker(3, schemes: ["x", "y"]) }
        let isolated = rig.jobs[0]
        rig.pass { $0.fetch("h", "x", "x:1", by: a) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.failed(isolated, "cancelled", by: WorkerID(rawValue: 3)) }
        #expect(rig.jobs.contains { $0.url == "x:1" })
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `an accused flight whose origin is full stays before all suspects`() throws {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1
        rig = CoreRig(limits: limits)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        let third = loseTwoWorkers()
        let suspected = try #require(rig.jobs.first?.url)
        // Worker 4 is busy, and takes the only slot of the accused flight's origin after its worker's death.
        let fourth = rig.worker(4)
        rig.pass { $0.fetch("h", "4", "http://h4/", by: a) }
        rig.pass { $0.fetch("h", "5", suspected + "other", by: a) }
        rig.pass { $0.core.workerLost(third, now: $0.now) }
        let other = try #require(rig.jobs.first)
        #expect(rig.jobs.map(\.url) == [suspected + "other"])
        let fifth = WorkerID(rawValue: 5)
        rig.pass { _ = $0.worker(5) }
        let second = try #require(rig.jobs.first)
        #expect(starts.map(\.worker) == [fifth] && second.url != suspected)
        rig.pass { $0.done(other, by: fourth) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.done(second, by: fifth) }
        #expect(rig.jobs.map(\.url) == [suspected])
        #expect(rig.core.audit() == [])
    }

    // MARK: Helpers

    /// Jobs of the last pass, with their workers.
    private var starts: [(worker: WorkerID, url: String)] {
        rig.actions.compactMap { if case .worker(.send(let id, .job(let job))) = $0 { (id, job.url) } else { nil } }
    }

    /// Kills two workers in succession, each with all flights of the queue. The third one gets the suspects.
    private mutating func loseTwoWorkers() -> WorkerID {
        for number in 1...2 as ClosedRange<UInt64> {
            rig.pass { _ = $0.worker(number) }
            rig.pass { rig in rig.core.workerLost(WorkerID(rawValue: number), now: rig.now) }
        }
        rig.pass { _ = $0.worker(3) }
        return WorkerID(rawValue: 3)
    }

    private func isPinged(_ worker: WorkerID) -> Bool {
        rig.actions.contains { if case .worker(.send(worker, .ping)) = $0 { true } else { false } }
    }

    /// The worker of the only job of the last pass.
    private func holder() -> WorkerID {
        #expect(starts.count == 1)
        return starts.first?.worker ?? WorkerID(rawValue: 0)
    }

    private mutating func why(_ request: String, by client: ClientID) -> String {
        rig.pass { $0.send(.query(.explainRequest(HandlerID("h")!, RequestID(request)!)), by: client) }
        for case .client(.answerQuery(_, _, let json)) in rig.actions { return String(decoding: json, as: UTF8.self) }
        return ""
    }

    /// Runs 20 flights with one worker at a time. One of the flights kills its worker some time after its start.
    ///
    /// - Returns: all terminals, and the number of workers that died.
    private mutating func runBeside(
        killer: String, afterMilliseconds: Int, healthyMilliseconds: Int
    ) -> (ends: [String], deaths: Int) {
        let a = rig.client(1)
        var worker = rig.worker(1, slots: 32)
        var deaths = 0
        var ends: [String] = []
        var running: [(job: Job, end: MonotonicTime)] = []
        rig.pass { rig in for n in 1...20 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        for _ in 0..<20_000 where ends.count < 20 {
            let now = rig.now
            running += rig.jobs.map { job in
                let duration = job.url == killer ? afterMilliseconds : healthyMilliseconds
                return (job, now.advanced(byMilliseconds: duration))
            }
            let over = running.filter { $0.end <= now }
            running.removeAll { $0.end <= now }
            let dies = over.contains { $0.job.url == killer }
            rig.now = now.advanced(byMilliseconds: 5)
            rig.pass { rig in
                if dies {
                    deaths += 1
                    rig.core.workerLost(worker, now: rig.now)
                    worker = rig.worker(UInt64(deaths + 1), slots: 32)
                } else {
                    rig.pong(by: worker)
                    for (job, _) in over { rig.done(job, by: worker) }
                }
            }
            if dies { running = [] }
            ends += rig.terminals(for: a)
        }
        #expect(rig.core.audit() == [])
        return (ends, deaths)
    }
}
