import EarshotWire
import Testing

@testable import EarshotCore

/// Workers of principals: their schemes, their rights, and the bounds of their number.
struct PrincipalPoolTests {
    private static let proof =
        GatewayProof(String(repeating: "0123456789abcdef", count: 4)) ?? { preconditionFailure("a valid proof") }()
    private static let names = ["key:a", "key:b"].map { PrincipalName($0) ?? { preconditionFailure("a valid name") }() }

    private var rig = CoreRig(secret: "s")

    init() { rig.core.expectGateway(Self.proof) }

    private var errors: [String] {
        rig.actions.compactMap { if case .worker(.send(_, .error(let code, _))) = $0 { code } else { nil } }
    }

    private var closed: [WorkerID] {
        rig.actions.compactMap { if case .worker(.close(let id)) = $0 { id } else { nil } }
    }

    private var limits: [WorkerLimits] {
        rig.actions.compactMap { if case .worker(.send(_, .limits(let limits))) = $0 { limits } else { nil } }
    }

    /// Connects a worker of a principal through the gateway; nil for the administrator's.
    @discardableResult
    private mutating func worker(
        _ number: UInt64, _ schemes: [String] = ["x"], of principal: Int?, _ change: (inout Ready) -> Void = { _ in }
    ) -> WorkerID {
        let id = WorkerID(rawValue: number)
        rig.core.workerConnected(id, now: rig.now)
        var ready = Ready(slots: 8)
        ready.schemes = schemes
        if let principal { (ready.principal, ready.proof) = (Self.names[principal], Self.proof) }
        change(&ready)
        rig.core.workerMessageReceived(.ready(ready), body: nil, from: id, now: rig.now)
        return id
    }

    /// Takes the actions since the last pass.
    private mutating func collect() { rig.actions = rig.core.takeActions() }

    private mutating func client(_ number: UInt64, of principal: Int?) -> ClientID {
        rig.client(number) { hello in
            if let principal { (hello.principal, hello.proof) = (Self.names[principal], Self.proof) }
        }
    }

    // MARK: Schemes

    @Test mutating func `a request goes to a worker of its principal only`() {
        let (one, other) = (worker(1, of: 0), worker(2, of: 1))
        let (a, b, admin) = (client(1, of: 0), client(2, of: 1), client(3, of: nil))
        rig.pass { rig in for client in [a, b, admin] { rig.fetch("h", "1", "x:same", by: client) } }
        let jobs = rig.actions.compactMap { action -> WorkerID? in
            if case .worker(.send(let id, .job)) = action { id } else { nil }
        }
        #expect(Set(jobs) == [one, other] && jobs.count == 2)
        #expect(rig.terminals(for: admin) == ["h 1 unsupported-scheme"])
        #expect(rig.core.records.originGovernor.origins.count == 2)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `another principal's scheme is as unknown as one that nobody serves`() {
        worker(1, of: 0)
        let b = client(2, of: 1)
        rig.pass { rig in
            rig.fetch("h", "1", "x:1", by: b)
            rig.fetch("h", "2", "y:1", by: b)
        }
        #expect(rig.terminals(for: b) == ["h 1 unsupported-scheme", "h 2 unsupported-scheme"])
        #expect(Set(rig.details(for: b)).count == 1)
        #expect(rig.core.records.originGovernor.origins.count == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the administrator's workers serve principals without a worker of the scheme`() {
        let own = worker(1, of: nil)
        let a = client(1, of: 0)
        rig.pass { $0.fetch("h", "1", "x:1", by: a) }
        let first = rig.jobs[0]
        rig.pass { $0.done(first, by: own) }
        #expect(rig.terminals(for: a) == ["h 1 200"])
        let remote = worker(2, of: 0)
        rig.pass { $0.fetch("h", "2", "x:2", by: a) }
        let second = rig.jobs[0]
        rig.pass { $0.done(second, by: remote) }
        #expect(rig.terminals(for: a) == ["h 2 200"])
        let admin = client(2, of: nil)
        rig.pass { $0.fetch("h", "3", "x:2", by: admin) }
        let third = rig.jobs[0]
        rig.pass { $0.done(third, by: own) }
        #expect(rig.terminals(for: admin) == ["h 3 200"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `requests of a lost worker wait for another one of its principal, and then fail`() {
        let lost = worker(1, of: 0)
        worker(2, of: 1)
        let a = client(1, of: 0)
        rig.pass { $0.fetch("h", "1", "x:1", by: a) }
        rig.pass { $0.core.workerLost(lost, now: $0.now) }
        #expect(rig.jobs.isEmpty)
        rig.wait(milliseconds: rig.core.limits.emptyPoolGraceMilliseconds)
        #expect(rig.terminals(for: a) == ["h 1 unsupported-scheme"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `requests to a new broker go to the first worker that may serve them`() {
        for principal in [nil, 0] as [Int?] {
            rig = CoreRig(secret: "s")
            rig.core.expectGateway(Self.proof)
            rig.core.awaitOwnWorkers(until: rig.now.advanced(byMilliseconds: 1_000))
            let (a, b) = (client(1, of: 0), client(2, of: 1))
            rig.pass { rig in
                for number in 1...3 { rig.fetch("h", "\(number)", "x:\(number % 2)", by: a) }
                rig.fetch("h", "1", "x:1", by: b)
            }
            #expect(rig.core.audit() == [])
            let own = worker(2, of: principal)
            rig.pass()
            let jobs = rig.jobs
            #expect(jobs.map(\.url).sorted() == (principal == nil ? ["x:0", "x:1", "x:1"] : ["x:0", "x:1"]))
            #expect(rig.core.audit() == [])
            rig.pass { rig in for job in jobs { rig.done(job, by: own) } }
            #expect(rig.terminals(for: a).sorted() == ["h 1 200", "h 2 200", "h 3 200"])
            #expect(rig.terminals(for: b) == (principal == nil ? ["h 1 200"] : []))
            rig.wait(milliseconds: 1_000)
            #expect(rig.terminals(for: b) == (principal == nil ? [] : ["h 1 unsupported-scheme"]))
            rig.pass { $0.core.workerLost(own, now: $0.now) }
            rig.wait(milliseconds: rig.core.limits.emptyPoolGraceMilliseconds)
            #expect(rig.core.records.workerPools.count == 1)
            #expect(rig.core.audit() == [])
        }
    }

    // MARK: Rights

    @Test mutating func `a worker of the gateway's process proves its principal`() {
        for (number, (principal, proof)) in [(nil, nil), (Self.names[0], nil), (nil, Self.proof)].enumerated() {
            let id = WorkerID(rawValue: UInt64(number + 1))
            rig.pass()
            rig.core.workerConnected(id, isGateway: true, now: rig.now)
            var ready = Ready(slots: 8)
            ready.schemes = ["x"]
            (ready.principal, ready.proof) = (principal, proof)
            rig.core.workerMessageReceived(.ready(ready), body: nil, from: id, now: rig.now)
            collect()
            #expect(errors == ["not-authorized"])
            #expect(closed == [id])
        }
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `only a proof of the gateway names a principal, and a worker of one gets nothing of the web`() {
        let wrong = GatewayProof(String(repeating: "0", count: 64))
        let changes: [(String, (inout Ready) -> Void)] = [
            ("not-authorized", { $0.proof = nil }), ("not-authorized", { $0.proof = wrong }),
            ("not-authorized", { $0.principal = nil }),
            ("not-a-child", { $0.schemes = ["http", "https"] }),
            (
                "not-a-child",
                {
                    $0.schemes = ["x", "http"]
                    $0.supervisorSecret = "s"
                }
            ),
        ]
        let a = client(1, of: 0)
        for (number, (code, change)) in changes.enumerated() {
            rig.pass()
            let id = worker(UInt64(number + 1), of: 0, change)
            collect()
            #expect(errors == [code] && closed == [id])
            rig.pass { $0.fetch("h", "\(number)", "http://h/", by: a) }
            #expect(rig.jobs.isEmpty)
        }
        #expect(rig.core.acceptingWorkerCount == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `its LIMITS name no path`() throws {
        worker(1, of: 0)
        collect()
        let reported = try #require(limits.first)
        #expect(reported.spoolPath.isEmpty && reported.maximumInlineBodyBytes == WireLimits.remoteResponseBodyBytes)
        #expect(reported.addressPolicy.isEmpty && reported.slots == nil && reported.sandboxSetting == 1)
    }

    @Test mutating func `its files are refused, and its growing files are unknown`() {
        let id = worker(1, of: 0)
        let a = client(1, of: 0)
        rig.pass { rig in
            rig.fetch("h", "1", "x:1", by: a) { fetch in
                fetch.options.streams = true
                fetch.options.progressIntervalMilliseconds = 50
            }
        }
        let job = rig.jobs[0]
        let file = SpoolName.partFile(of: job.attempt, pid: 0)
        let part = BodyPart(fileName: file, httpFields: Array("etag: \"1\"".utf8))
        rig.pass { rig in
            rig.core.workerMessageReceived(
                .progress(job.attempt, received: 3, total: nil, part: part), body: nil, from: id, now: rig.now)
        }
        #expect(rig.core.audit() == [])
        var completion = Completion(attempt: job.attempt, status: 200)
        (completion.fileName, completion.bodyByteCount, completion.sha256) = (
            file, 3, String(repeating: "a", count: 64)
        )
        #expect(
            rig.fileWork(before: .completed(completion), by: id) == WorkerFileOperations(body: .rejectFromRemoteWorker))
        let failed = WorkerMessage.failed(job.attempt, code: "timeout", detail: nil, receivedBytes: 3, part: part)
        #expect(rig.fileWork(before: failed, by: id) == WorkerFileOperations())
        #expect(rig.fileWork(before: .bye, by: id) == WorkerFileOperations())
        completion.fileName = nil
        for (length, isLarge) in [(3, false), (65_536, false), (65_537, true)] {
            completion.bodyByteCount = length
            #expect(
                rig.fileWork(before: .completed(completion), by: id)
                    == WorkerFileOperations(body: .storeReceivedBody(isLarge: isLarge)))
        }
    }

    // MARK: Bounds

    @Test mutating func `the schemes and workers of one principal leave room for others`() {
        let own = rig.core.limits.maximumWorkerPools / 4
        _ = rig.core.takeActions()
        worker(1, (0..<own).map { "s\($0)" }, of: 0)
        collect()
        #expect(errors.isEmpty)
        worker(2, ["more"], of: 0)
        collect()
        #expect(errors == ["limit"])
        let most = UInt64(rig.core.limits.maximumRemoteWorkers / 4)
        for number in 3..<(2 + most) { worker(number, ["s0"], of: 0) }
        collect()
        #expect(errors.isEmpty)
        worker(100, ["s0"], of: 0)
        worker(101, ["s0"], of: 1)
        collect()
        #expect(errors == ["limit"] && closed == [WorkerID(rawValue: 100)])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `the names of principals with workers stay while others are swept`() {
        worker(1, of: 0)
        for number in 1...200 {
            rig.pass { rig in
                let id = rig.client(UInt64(number)) { $0.principal = PrincipalName("uid:\(number)") }
                rig.core.clientLost(id, now: rig.now)
            }
        }
        let a = client(1_000, of: 0)
        rig.pass { $0.fetch("h", "1", "x:1", by: a) }
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }
}
