internal import Cares
internal import Curl
internal import Decompression
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import LibCrypto
internal import Logging

/// Jobs of http and https: transfers with libcurl.
///
/// Runs leave notes here from inside libcurl, for the current pass.
final class Transfers: JobKind {
    /// Public files that libcurl, c-ares, OpenSSL and the log read at any time. Folders and not files, where a new version
    /// replaces a file: a rule does not concern later files.
    private static let publicFiles = [
        "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/run/systemd/resolve",
        "/etc/localtime", "/usr/share/zoneinfo",
        "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
        "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
    ]

    let jobs: RunTable<TransferRun>
    let traits: WorkerTraits
    let names: Names
    let pool: TransferPool
    private let options: WorkerOptions
    /// Files of jobs that the broker sent.
    private var files = FileTable()
    /// Descriptors that the kernel could not watch.
    private let unwatched = FaultRecord()
    /// Runs with so many bytes that their PROGRESS cannot wait.
    var grownRuns: [TransferRun] = []
    /// Runs with enough unhashed body for a hash thread.
    var hashable: [TransferRun] = []
    /// Runs that wait for their rate.
    var paced: [TransferRun] = []
    /// Runs that received a redirect whose body is not needed.
    var redirected: [TransferRun] = []
    /// Runs with bytes that this pass had no budget to decode, in the order of their turns.
    var decodable: [TransferRun] = []
    /// Decoded bytes that this pass may still produce.
    var decodingBudget = Limits.decodedBytesPerPass
    /// Output buffer of one decoding step; empty before the first.
    var decoded: [UInt8] = []

    private var loop: EventLoop { jobs.loop }

    /// - Throws: `CurlError` or `LibraryError` if a library cannot be loaded, `CaresError` if a name server is not an
    ///   address.
    init(_ options: WorkerOptions, loop: EventLoop, logger: Logger) throws {
        self.options = options
        jobs = try RunTable(
            BrokerLink(.socket(options.workPath), loop: loop, logger: logger), loop: loop, logger: logger)
        let unwatched = unwatched
        let makeWatch: DescriptorWatch.Maker = { DescriptorWatch(loop, ready: $0) { unwatched.record($0) } }
        pool = TransferPool(loop: loop, makeWatch: makeWatch)
        try pool.prepare()
        if !Multi.speaksHTTP2 {
            logger.warning("HTTP/2 is off: this libcurl does not report the end of a stream")
        }
        try Decompressor.loadLibraries()
        names = try Names(servers: options.dnsServers, loop: loop, makeWatch: makeWatch)
        var ready = Ready(slots: options.slots)
        ready.secret = options.secret
        ready.speaksHTTP2 = Multi.speaksHTTP2
        ready.needsFiles = true
        traits = WorkerTraits(
            ready: ready, mostSlots: options.mostSlots,
            drainTime: options.parentPid == nil ? Limits.drainTime : nil, followsLogLevel: options.followsLogLevel,
            readableFiles: Self.publicFiles, reportsSandbox: true,
            refusal: { code, _ in
                guard code == "not-a-child" else { return nil }
                return
                    "the broker takes only workers that its supervisor started: raise `workers` with `earshot set`, or "
                    + "run a broker of its own with `earshot broker`"
            })
    }

    func makeRoom(slots: Int) { pool.makeRoom(slots: slots, of: options.mostSlots) }

    func handle(_ message: PoolMessage, _ content: [UInt8]?) {
        switch message {
        case .file(_, HostsFile.path, _): names.hosts = HostsFile(content ?? [])
        case .file(let place, let path, let error): files.put(place, path, content ?? [], error)
        case .rate(let attempt, let rate): jobs.runs[attempt]?.limit(toRate: rate)
        case .limits, .job, .raise, .cancel, .ping, .drain, .error: break
        }
    }

    func start(_ job: Job, _ body: [UInt8]?, _ terms: Terms) throws(Refusal) {
        let plan = try TransferPlan.make(job, body, options, files)
        let policies = TransferRun.policies(of: job, terms)
        // The proxy connects to the server, so the worker cannot check the server's address.
        guard plan.proxy == nil || policies.isEmpty else {
            throw Refusal(
                .addressRefused, "The address policy cannot be enforced through a proxy; choose proxy: none.")
        }
        let run = TransferRun(job, consume plan, terms, policies, self)
        jobs.add(run)
        guard let part = run.offeredPart else { return begin(run) }
        do throws(SystemError) {
            run.phase = .hashing(
                try jobs.hasher.hash(
                    part.file.descriptor, 0..<Int(part.partialBody.keptBytes), continuing: SHA256(), for: job.attempt))
        } catch {
            jobs.fail(run, Refusal(.internalError, error.description))
        }
    }

    /// Starts the connect timeout and the name lookup.
    func begin(_ run: TransferRun) {
        jobs.watchOver(run)
        resolve(run)
    }

    // MARK: The pass

    var dueTime: LoopTime? { pool.dueTime.map { min($0, names.dueTime ?? $0) } ?? names.dueTime }

    func work() throws -> Bool {
        for answered in names.runPass() { nameAnswered(answered) }
        decodeReceived()
        continuePaced()
        for finished in pool.runPass() { ended(finished) }
        for run in Self.take(&hashable) where !run.isOver { jobs.hashOn(run) }
        limitRedirects()
        for run in Self.take(&grownRuns) where !run.isOver { run.sendProgress(isEarly: true) }
        if let fault = unwatched.fault { throw fault }
        return !decodable.isEmpty || !paced.isEmpty
    }

    /// Returns the noted runs, which can then be noted again.
    private static func take(_ notes: inout [TransferRun]) -> [TransferRun] {
        guard !notes.isEmpty else { return [] }
        defer { notes.removeAll(keepingCapacity: true) }
        return notes
    }

    /// Continues a run after its name lookup.
    private func nameAnswered(_ answered: Names.Answered) {
        guard let run = jobs.runs[answered.attempt], case .resolving = run.phase else { return }
        if let reason = run.pendingRefusal { jobs.fail(run, reason) } else { connect(run, answered.answer) }
    }

    /// Handles the end of a transfer.
    private func ended(_ finished: FinishedTransfer) {
        guard let run = finished.sink as? TransferRun, !run.isOver else { return }
        run.repeatCount += finished.result.repeats
        do throws(Refusal) {
            if run.response.wantsWhole {
                run.startOver()
                resolve(run)
                return
            }
            if run.response.isCut {
                jobs.complete(run)
                return
            }
            if let refusal = run.response.refusal { throw refusal }
            if let failure = finished.result.failure {
                jobs.logger.debug(
                    "a transfer failed",
                    metadata: [
                        "attempt": "\(run.job.attempt)", "libcurl": "\(Printable.sentence(finished.result.detail))",
                    ])
                throw Refusal(failure, finished.result, run.plan)
            }
            guard !finished.result.lacksGoodbye || !run.response.endsWithConnection else {
                throw Refusal(
                    .truncated,
                    finished.result.usedHTTP2
                        ? "The HTTP/2 stream ended without END_STREAM: the body may be cut off."
                        : "The TLS connection ended without close_notify: the body may be cut off.")
            }
            try seal(run)
        } catch {
            fail(run, error)
        }
    }

    /// Ends a run whose transfer succeeded, once all of its body is decoded and hashed.
    private func seal(_ run: TransferRun) throws(Refusal) {
        try run.end()
        guard !run.hasWork else { return }
        run.phase = .sealing
        jobs.hashOn(run)
    }

    /// Ends a run whose body cannot be completed. The job still succeeds if its head suffices.
    private func fail(_ run: TransferRun, _ refusal: Refusal) {
        if run.omitRedirectBody() { jobs.complete(run) } else { jobs.fail(run, refusal) }
    }

    /// Gives each transfer with undecoded bytes a turn, and resumes paused transfers.
    private func decodeReceived() {
        decodingBudget = Limits.decodedBytesPerPass
        for run in Self.take(&decodable) where !run.isOver {
            guard run.decode() else {
                fail(run, run.response.refusal ?? Refusal(.internalError))
                continue
            }
            guard !run.hasWork else { continue }
            if run.response.isReceived {
                do throws(Refusal) { try seal(run) } catch { fail(run, error) }
            } else if run.takePause(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Resumes transfers whose rate permits it, and sets timers for the others.
    private func continuePaced() {
        for run in Self.take(&paced) where !run.isOver {
            if let end = run.paceEnd {
                loop.setTimer(at: end) { [weak self, attempt = run.job.attempt] in
                    if let self, let run = jobs.runs[attempt] { paced.append(run) }
                }
            } else if run.takePace(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Gives the bodies of redirects a moment to end, so that their connections can be reused, and then cuts them off.
    private func limitRedirects() {
        for run in Self.take(&redirected) where !run.isOver {
            loop.setTimer(after: Limits.redirectGrace) { [weak self, attempt = run.job.attempt] in
                guard let self, let run = jobs.runs[attempt], case .transferring = run.phase, run.omitRedirectBody()
                else { return }
                jobs.complete(run)
            }
        }
    }

    // MARK: The connection

    private func resolve(_ run: TransferRun) {
        if let address = IPAddress(host: run.plan.host) {
            connect(run, to: [address.description], resolve: { _ in [] })
        } else if let answer = names.lookUp(run.plan.host, for: run.job.attempt) {
            connect(run, answer)
        }
    }

    private func connect(_ run: TransferRun, _ answer: NameAnswer) {
        switch answer {
        case .addresses(let addresses):
            connect(run, to: addresses) { NameAnswer.resolveEntries(host: run.plan.host, port: run.plan.hostPort, $0) }
        case .unknown: jobs.fail(run, Refusal(.unknownHost, lookedUpFor: run.plan))
        case .failed: jobs.fail(run, Refusal(.dnsFailed, lookedUpFor: run.plan))
        }
    }

    /// Starts the transfer with the addresses that the policy admits. libcurl asks the sink again before it connects,
    /// but a refused address can cost it a part of the connect timeout.
    private func connect(_ run: TransferRun, to addresses: [String], resolve: ([String]) -> [String]) {
        let admitted = addresses.filter { run.admits(address: $0) }
        guard !admitted.isEmpty else {
            jobs.fail(run, Refusal(.addressRefused))
            return
        }
        transfer(run, resolve: resolve(admitted))
    }

    private func transfer(_ run: TransferRun, resolve: [String]) {
        var request = run.request
        request.resolve = resolve
        request.connectTimeout = run.connectTimeLeft(loop.now)
        do throws(CurlError) {
            run.phase = .transferring(
                try pool.start(request, host: run.plan.host, port: run.plan.hostPort, sink: run))
        } catch {
            jobs.fail(run, Refusal(.internalError, error.description))
        }
    }
}
