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
/// Runs schedule work here from inside libcurl, for the current pass.
final class Transfers: JobKind {
    /// Public files that libcurl, c-ares, OpenSSL and the log read at any time. Folders and not files, where a new
    /// version replaces a file: a rule does not concern later files.
    private static let publicFiles = [
        "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/run/systemd/resolve",
        "/etc/localtime", "/usr/share/zoneinfo",
        "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
        "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
    ]

    let jobs: RunTable<TransferRun>
    let traits: WorkerTraits
    let nameLookups: Names
    let pool: TransferPool
    private let options: WorkerOptions
    /// Files of jobs that the broker sent.
    private var files = FileTable()
    /// Descriptors that the kernel could not watch.
    private let descriptorFaults = FaultRecord()
    /// Runs with so many bytes that their PROGRESS cannot wait.
    var runsWithEarlyProgress: [TransferRun] = []
    /// Runs with enough unhashed body for a hash thread.
    var runsToHash: [TransferRun] = []
    /// Runs that wait for their rate.
    var runsWaitingForRate: [TransferRun] = []
    /// Runs that received a redirect whose body is not needed.
    var runsWithRedirect: [TransferRun] = []
    /// Runs with bytes that this pass had no budget to decode, in the order of their turns.
    var runsToDecode: [TransferRun] = []
    /// Decoded bytes that this pass may still produce.
    var remainingDecodingBytes = Limits.decodedBytesPerPass
    /// Output buffer of one decoding step; empty before the first.
    var decodingBuffer: [UInt8] = []

    private var loop: EventLoop { jobs.loop }

    /// - Throws: `CurlError` or `LibraryError` if a library cannot be loaded, `CaresError` if a name server is not an
    ///   address.
    init(_ options: WorkerOptions, loop: EventLoop, logger: Logger) throws {
        self.options = options
        jobs = try RunTable(
            BrokerLink(.unixSocket(options.workPath), loop: loop, logger: logger), loop: loop, logger: logger)
        let faults = descriptorFaults
        let makeWatch: DescriptorWatch.Maker = { DescriptorWatch(loop, ready: $0) { faults.recordFirstFault($0) } }
        pool = TransferPool(loop: loop, makeWatch: makeWatch)
        try pool.createFirstShard()
        if !Multi.speaksHTTP2 {
            logger.warning("HTTP/2 is off: this libcurl does not report the end of a stream")
        }
        try Decompressor.loadLibraries()
        nameLookups = try Names(servers: options.dnsServers, loop: loop, makeWatch: makeWatch)
        var ready = Ready(slots: options.slots)
        ready.supervisorSecret = options.secret
        ready.speaksHTTP2 = Multi.speaksHTTP2
        ready.needsFileContents = true
        traits = WorkerTraits(
            readyMessage: ready, maximumSlots: options.maximumSlots,
            drainTime: options.parentPid == nil ? Limits.drainTime : nil, followsLogLevel: options.followsLogLevel,
            readableFiles: Self.publicFiles, reportsSandbox: true,
            refusalSentence: { code, _ in
                guard code == "not-a-child" else { return nil }
                return
                    "the broker takes only workers that its supervisor started: raise `workers` with `earshot set`, or "
                    + "run a broker of its own with `earshot broker`"
            })
    }

    func prepareForSlots(_ slots: Int) { pool.setSlots(slots, maximumSlots: options.maximumSlots) }

    func handleTransferMessage(_ message: PoolMessage, content: [UInt8]?) {
        switch message {
        case .fileContent(_, HostsFile.path, _): nameLookups.hosts = HostsFile(content ?? [])
        case .fileContent(let place, let path, let error):
            files.storeFile(at: place, path: path, content: content ?? [], error: error)
        case .changeRate(let attempt, let rate): jobs.runs[attempt]?.setRateLimit(bytesPerSecond: rate)
        case .limits, .job, .raiseBodyLimit, .cancelAttempt, .ping, .drain, .error: break
        }
    }

    func start(_ job: Job, body: [UInt8]?, terms: Terms) throws(Refusal) {
        let plan = try TransferPlan.make(job: job, body: body, options: options, files: files)
        let policies = TransferRun.addressPolicies(of: job, terms)
        // The proxy connects to the server, so the worker cannot check the server's address.
        guard plan.proxy == nil || policies.isEmpty else {
            throw Refusal(.addressRefused, "The address policy cannot be enforced through a proxy; choose proxy: none.")
        }
        let run = TransferRun(job: job, plan: consume plan, terms: terms, policies: policies, transfers: self)
        jobs.add(run)
        guard let part = run.offeredPart else { return beginLookup(run) }
        do throws(SystemError) {
            run.phase = .hashingPart(
                try jobs.hasher.hash(
                    part.file.descriptor, 0..<Int(part.partialBody.keptBytes), continuing: SHA256(), for: job.attempt))
        } catch {
            jobs.fail(run, refusal: Refusal(.internalError, error.description))
        }
    }

    /// Starts the connect timeout and the name lookup.
    func beginLookup(_ run: TransferRun) {
        jobs.scheduleDeadlineCheck(of: run)
        resolveHost(of: run)
    }

    // MARK: The pass

    var nextPassTime: LoopTime? {
        pool.nextTimerTime.map { min($0, nameLookups.nextTimerTime ?? $0) } ?? nameLookups.nextTimerTime
    }

    func handlePassEvents() throws -> Bool {
        for answered in nameLookups.runPass() { nameAnswered(answered) }
        decodeReceivedBodies()
        resumeRateLimitedRuns()
        for finished in pool.runPass() { transferEnded(finished) }
        for run in Self.takeRuns(&runsToHash) where !run.isOver { jobs.continueHashing(run) }
        cutOffRedirectBodies()
        for run in Self.takeRuns(&runsWithEarlyProgress) where !run.isOver { run.sendProgress(isEarly: true) }
        if let fault = descriptorFaults.firstFault { throw fault }
        return !runsToDecode.isEmpty || !runsWaitingForRate.isEmpty
    }

    /// Returns the scheduled runs, which can then be scheduled again.
    private static func takeRuns(_ runs: inout [TransferRun]) -> [TransferRun] {
        guard !runs.isEmpty else { return [] }
        defer { runs.removeAll(keepingCapacity: true) }
        return runs
    }

    /// Continues a run after its name lookup.
    private func nameAnswered(_ answered: Names.AttemptAnswer) {
        guard let run = jobs.runs[answered.attempt], case .resolving = run.phase else { return }
        if let reason = run.pendingRefusal {
            jobs.fail(run, refusal: reason)
        } else {
            connect(run, answer: answered.answer)
        }
    }

    /// Handles the end of a transfer.
    private func transferEnded(_ finished: FinishedTransfer) {
        guard let run = finished.sink as? TransferRun, !run.isOver else { return }
        run.requestRepeatCount += finished.result.repeatedRequestCount
        do throws(Refusal) {
            if run.response.requiresWholeBody {
                run.restartWithoutPart()
                resolveHost(of: run)
                return
            }
            if run.response.omitsBody {
                jobs.complete(run)
                return
            }
            if let refusal = run.response.refusal { throw refusal }
            if let failure = finished.result.failure {
                jobs.logger.debug(
                    "a transfer failed",
                    metadata: [
                        "attempt": "\(run.job.attempt)",
                        "libcurl": "\(Printable.sanitizedSentence(finished.result.detail))",
                    ])
                throw Refusal(failure, result: finished.result, plan: run.plan)
            }
            guard !finished.result.lacksExplicitEnd || !run.response.endsAtConnectionClose else {
                throw Refusal(
                    .truncated,
                    finished.result.usedHTTP2
                        ? "The HTTP/2 stream ended without END_STREAM: the body may be cut off."
                        : "The TLS connection ended without close_notify: the body may be cut off.")
            }
            try hashRemainingBody(run)
        } catch {
            failRun(run, error)
        }
    }

    /// Ends a run whose transfer succeeded, once all of its body is decoded and hashed.
    private func hashRemainingBody(_ run: TransferRun) throws(Refusal) {
        try run.finishTransfer()
        guard !run.hasUndecodedBytes else { return }
        run.phase = .hashingBody
        jobs.continueHashing(run)
    }

    /// Ends a run whose body cannot be completed. The job still succeeds if its head suffices.
    private func failRun(_ run: TransferRun, _ refusal: Refusal) {
        if run.omitRedirectBody() { jobs.complete(run) } else { jobs.fail(run, refusal: refusal) }
    }

    /// Decodes bytes of each waiting transfer in turn, and resumes paused transfers.
    private func decodeReceivedBodies() {
        remainingDecodingBytes = Limits.decodedBytesPerPass
        for run in Self.takeRuns(&runsToDecode) where !run.isOver {
            guard run.decodeWithinBudget() else {
                failRun(run, run.response.refusal ?? Refusal(.internalError))
                continue
            }
            guard !run.hasUndecodedBytes else { continue }
            if run.response.isTransferComplete {
                do throws(Refusal) { try hashRemainingBody(run) } catch { failRun(run, error) }
            } else if run.takeDecodingPause(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Resumes transfers whose rate permits it, and sets timers for the others.
    private func resumeRateLimitedRuns() {
        for run in Self.takeRuns(&runsWaitingForRate) where !run.isOver {
            if let end = run.rateAdmissionTime {
                loop.setTimer(at: end) { [weak self, attempt = run.job.attempt] in
                    if let self, let run = jobs.runs[attempt] { runsWaitingForRate.append(run) }
                }
            } else if run.takeRatePause(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Cuts off the bodies of redirects after a moment, in which they may end so that their connections can be reused.
    private func cutOffRedirectBodies() {
        for run in Self.takeRuns(&runsWithRedirect) where !run.isOver {
            loop.setTimer(after: Limits.redirectGrace) { [weak self, attempt = run.job.attempt] in
                guard let self, let run = jobs.runs[attempt], case .transferring = run.phase, run.omitRedirectBody()
                else { return }
                jobs.complete(run)
            }
        }
    }

    // MARK: The connection

    private func resolveHost(of run: TransferRun) {
        if let address = IPAddress(host: run.plan.connectHost) {
            connect(run, to: [address.description], resolve: { _ in [] })
        } else if let answer = nameLookups.lookUp(run.plan.connectHost, for: run.job.attempt) {
            connect(run, answer: answer)
        }
    }

    private func connect(_ run: TransferRun, answer: NameAnswer) {
        switch answer {
        case .addresses(let addresses):
            connect(run, to: addresses) {
                NameAnswer.resolveEntries(host: run.plan.connectHost, port: run.plan.connectPort, $0)
            }
        case .nameNotFound: jobs.fail(run, refusal: Refusal(.unknownHost, failedLookupOf: run.plan))
        case .lookupFailed: jobs.fail(run, refusal: Refusal(.dnsFailed, failedLookupOf: run.plan))
        }
    }

    /// Starts the transfer with the addresses that the policy admits. libcurl consults the sink again before it
    /// connects, but a refused address can cost a part of the connect timeout.
    private func connect(_ run: TransferRun, to addresses: [String], resolve: ([String]) -> [String]) {
        let admitted = addresses.filter { run.admits(address: $0) }
        guard !admitted.isEmpty else {
            jobs.fail(run, refusal: Refusal(.addressRefused))
            return
        }
        startTransfer(run, resolveEntries: resolve(admitted))
    }

    private func startTransfer(_ run: TransferRun, resolveEntries: [String]) {
        var request = run.request
        request.resolveEntries = resolveEntries
        request.connectTimeout = run.remainingConnectTime(now: loop.now)
        do throws(CurlError) {
            run.phase = .transferring(
                try pool.start(request, host: run.plan.connectHost, port: run.plan.connectPort, sink: run))
        } catch {
            jobs.fail(run, refusal: Refusal(.internalError, error.description))
        }
    }
}
