internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import LibCrypto
internal import Logging
internal import ZMTP

/// A job from the broker's JOB to the worker's DONE or FAILED. A CANCEL ends in `fail`.
extension Worker {
    func start(_ job: Job, _ body: [UInt8]?) {
        guard runs[job.attempt] == nil, !link.waiting.contains(job.attempt) else {
            logger.warning("ignored a repeated job", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        do throws(Refusal) {
            guard phase == .serving, runs.count < slots else { throw Refusal(.workerLost) }
            // A broker sends LIMITS before its first job.
            guard link.isUp, let terms else { throw Refusal(.internalError) }
            let plan = try TransferPlan.make(job, body, options, files)
            let policies = JobRun.policies(of: job, terms)
            // The proxy connects to the server, so the worker cannot check the server's address.
            guard plan.proxy == nil || policies.isEmpty else {
                throw Refusal(
                    .addressRefused, "The address policy cannot be enforced through a proxy; choose proxy: none.")
            }
            let run = JobRun(job, consume plan, terms, policies, loop: loop, notes: notes)
            runs[job.attempt] = run
            if logsAttempts {
                logger.debug("started an attempt", metadata: ["attempt": "\(job.attempt)", "host": "\(run.plan.host)"])
            }
            try begin(run)
        } catch {
            refuse(job, error)
        }
    }

    /// Hashes a lent part on a thread, or starts the name lookup if there is none.
    private func begin(_ run: JobRun) throws(Refusal) {
        if let part = run.offeredPart {
            do throws(SystemError) {
                run.phase = .hashing(
                    try hasher.hash(
                        part.file.descriptor, 0..<Int(part.kept.keptBytes), continuing: SHA256(),
                        for: run.job.attempt))
                return
            } catch {
                runs[run.job.attempt] = nil
                run.discard()
                throw Refusal(.internalError, error.description)
            }
        }
        watchOver(run)
        resolve(run)
    }

    /// Continues a run after a thread has hashed a lent part or a range of its body.
    func hashed(_ task: PartHasher.Task) {
        guard let run = runs[task.attempt] else { return }
        switch run.phase {
        case .hashing(let own):
            guard own === task else { return }
            run.begin()
            watchOver(run)
            resolve(run)
        case .resolving: break
        case .transferring, .sealing:
            guard run.hashed(task) else {
                fail(run, Refusal(.internalError, "The body's file cannot be read."))
                return
            }
            hashOn(run)
        }
    }

    /// Starts a thread on unhashed bytes, if there are enough. Completes a run that waits only for its hash.
    func hashOn(_ run: JobRun) {
        do throws(SystemError) {
            try run.hash(on: hasher)
        } catch {
            fail(run, Refusal(.internalError, error.description))
            return
        }
        if case .sealing = run.phase, run.isHashed { complete(run) }
    }

    /// Continues a run after its name lookup.
    func named(_ answered: Names.Answered) {
        guard let run = runs[answered.attempt], case .resolving = run.phase else { return }
        begin(run, answered.answer)
    }

    /// Handles the end of a transfer.
    func ended(_ finished: FinishedTransfer) {
        guard let run = finished.sink as? JobRun, !run.isOver else { return }
        run.repeats += finished.result.repeats
        do throws(Refusal) {
            if run.wantsWhole {
                run.startOver()
                resolve(run)
                return
            }
            if run.isCut {
                complete(run)
                return
            }
            if let refusal = run.refusal { throw refusal }
            if let failure = finished.result.failure {
                logger.debug(
                    "a transfer failed",
                    metadata: [
                        "attempt": "\(run.job.attempt)", "libcurl": "\(Printable.sentence(finished.result.detail))",
                    ])
                throw Refusal(failure, finished.result, run.plan)
            }
            guard !finished.result.lacksGoodbye || !run.endsWithConnection else {
                throw Refusal(
                    .truncated,
                    finished.result.usedHTTP2
                        ? "The HTTP/2 stream ended without END_STREAM: the body may be cut off."
                        : "The TLS connection ended without close_notify: the body may be cut off.")
            }
            try seal(run)
        } catch {
            giveUp(run, error)
        }
    }

    /// Ends a run whose transfer succeeded, once all of its body is decoded and hashed.
    private func seal(_ run: JobRun) throws(Refusal) {
        try run.end()
        guard !run.hasWork else { return }
        run.phase = .sealing
        hashOn(run)
    }

    /// Ends a run whose body cannot be completed. The job still succeeds if its head suffices.
    private func giveUp(_ run: JobRun, _ refusal: Refusal) {
        if run.cut() { complete(run) } else { fail(run, refusal) }
    }

    /// Gives each transfer with undecoded bytes a turn, and resumes paused transfers.
    func decodeWhatCame() {
        notes.decodingBudget = Limits.decodedBytesPerPass
        guard !notes.decodable.isEmpty else { return }
        let noted = notes.decodable
        notes.decodable.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver {
            guard run.decode() else {
                giveUp(run, run.refusal ?? Refusal(.internalError))
                continue
            }
            guard !run.hasWork else { continue }
            if run.isReceived {
                do throws(Refusal) { try seal(run) } catch { giveUp(run, error) }
            } else if run.takePause(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Resumes transfers whose rate permits it, and sets timers for the others.
    func continuePaced() {
        guard !notes.paced.isEmpty else { return }
        let noted = notes.paced
        notes.paced.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver {
            if let end = run.paceEnd {
                loop.setTimer(at: end) { [weak self, attempt = run.job.attempt] in
                    if let self, let run = runs[attempt] { notes.paced.append(run) }
                }
            } else if run.takePace(), case .transferring(let running) = run.phase {
                pool.resume(running)
            }
        }
    }

    /// Gives the bodies of redirects a moment to end, so that their connections can be reused, and then cuts them off.
    func limitRedirects() {
        guard !notes.redirected.isEmpty else { return }
        let noted = notes.redirected
        notes.redirected.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver {
            loop.setTimer(after: Limits.redirectGrace) { [weak self, attempt = run.job.attempt] in
                guard let self, let run = runs[attempt], case .transferring = run.phase, run.cut() else { return }
                complete(run)
            }
        }
    }

    /// Sends the DONE of a complete response.
    private func complete(_ run: JobRun) {
        do throws(Refusal) {
            let (completion, body) = try run.complete()
            forget(run)
            if logsAttempts {
                logger.debug(
                    "completed an attempt",
                    metadata: [
                        "attempt": "\(completion.attempt)", "status": "\(completion.status)",
                        "bytes": "\(completion.length)",
                    ])
            }
            link.send(Message(head: WorkerMessage.done(completion).encoded(), body: body)) { message in
                let discard = completion.file.map { file in { () -> Void in run.spool?.delete(file) } }
                return Outgoing(attempt: completion.attempt, message: message, discard: discard)
            }
        } catch {
            fail(run, error)
        }
    }

    /// Fails a run. Closes its socket and deletes or leaves its bytes before FAILED is sent.
    func fail(_ run: JobRun, _ refusal: Refusal) {
        let receivedBytes = run.receivedBytes
        let unwantedBytes = refusal.code == .cancelled ? run.bytesOfPass : 0
        let part = refusal.code.leavesGoodBytes ? run.leave() : nil
        forget(run)
        refuse(
            run.job, refusal, receivedBytes: receivedBytes, unwantedBytes: unwantedBytes, part: part,
            repeats: run.repeats)
    }

    /// Releases all resources of a run.
    func forget(_ run: JobRun) {
        switch run.phase {
        case .hashing(let task): task.cancel()
        case .resolving: names.withdraw(run.plan.host, for: run.job.attempt)
        case .transferring(let running): pool.cancel(running)
        case .sealing: break
        }
        run.isOver = true
        run.discard()
        if let timer = run.timer { loop.cancelTimer(timer) }
        runs[run.job.attempt] = nil
    }

    private func refuse(
        _ job: Job, _ refusal: Refusal, receivedBytes: Int = 0, unwantedBytes: Int = 0, part: BodyPart? = nil,
        repeats: Int = 0
    ) {
        if logsAttempts {
            let metadata: Logger.Metadata = [
                "attempt": "\(job.attempt)", "code": "\(refusal.code.rawValue)", "bytes": "\(receivedBytes)",
            ]
            logger.debug("failed an attempt", metadata: metadata)
        }
        link.send(
            refusal, of: job, receivedBytes: receivedBytes, unwantedBytes: unwantedBytes, part: part, repeats: repeats)
    }

    private func watchOver(_ run: JobRun) {
        // By attempt ID and not by a weak reference, which would slow down reference counting for the object's
        // lifetime.
        run.timer = loop.setTimer(at: run.deadline) { [weak self, attempt = run.job.attempt] in
            guard let self, let run = runs[attempt] else { return }
            if let refusal = run.overdue(loop.now) {
                fail(run, refusal)
            } else {
                watchOver(run)
            }
        }
    }

    private func resolve(_ run: JobRun) {
        if let address = IPAddress(host: run.plan.host) {
            connect(run, to: [address.description], resolve: { _ in [] })
        } else if let answer = names.lookUp(run.plan.host, for: run.job.attempt) {
            begin(run, answer)
        }
    }

    private func begin(_ run: JobRun, _ answer: NameAnswer) {
        switch answer {
        case .addresses(let addresses):
            connect(run, to: addresses) { NameAnswer.resolveEntries(host: run.plan.host, port: run.plan.hostPort, $0) }
        case .unknown: fail(run, Refusal(.unknownHost, lookedUpFor: run.plan))
        case .failed: fail(run, Refusal(.dnsFailed, lookedUpFor: run.plan))
        }
    }

    /// Starts the transfer with the addresses that the policy admits. libcurl asks the sink again before it connects,
    /// but a refused address can cost it a part of the connect timeout.
    private func connect(_ run: JobRun, to addresses: [String], resolve: ([String]) -> [String]) {
        let admitted = addresses.filter { run.admits(address: $0) }
        guard !admitted.isEmpty else {
            fail(run, Refusal(.addressRefused))
            return
        }
        transfer(run, resolve: resolve(admitted))
    }

    private func transfer(_ run: JobRun, resolve: [String]) {
        var request = run.request
        request.resolve = resolve
        request.connectTimeout = run.connectTimeLeft(loop.now)
        do throws(CurlError) {
            run.phase = .transferring(
                try pool.start(request, host: run.plan.host, port: run.plan.hostPort, sink: run))
        } catch {
            fail(run, Refusal(.internalError, error.description))
        }
    }
}
