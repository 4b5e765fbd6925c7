internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import LibCrypto
internal import Logging
internal import ZMTP

/// A job's way from JOB to its terminal.
extension Worker {
    func start(_ job: Job, _ body: [UInt8]?) {
        guard runs[job.attempt] == nil, !link.waiting.contains(job.attempt) else {
            logger.warning("a job was given twice", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        do throws(Refusal) {
            guard phase == .serving, runs.count < slots else { throw Refusal(.workerLost) }
            // Before its LIMITS a broker has no job to give.
            guard link.isUp, let terms else { throw Refusal(.internalError) }
            let plan = try TransferPlan.make(job, body, options)
            // The proxy connects, where to is out of sight.
            guard plan.proxy == nil || !terms.addresses.isRestricting else {
                throw Refusal(.addressRefused, "Behind a proxy the policy for addresses cannot be kept.")
            }
            let run = JobRun(job, consume plan, terms, loop: loop, notes: notes)
            runs[job.attempt] = run
            try begin(run)
        } catch {
            refuse(job, error)
        }
    }

    /// Hashes what is there of its body beside the loop, then asks for the rest.
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

    /// A part of a body has been hashed: what was there before it goes on, or something of what came.
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

    /// Has a thread go on with the hash of a body, if there is enough of it; ends a job whose hash was all it waited
    /// for.
    func hashOn(_ run: JobRun) {
        do throws(SystemError) {
            try run.hash(on: hasher)
        } catch {
            fail(run, Refusal(.internalError, error.description))
            return
        }
        if case .sealing = run.phase, run.isHashed { complete(run) }
    }

    /// The addresses of the host a job waits for are known, or not to be had.
    func named(_ answered: Names.Answered) {
        guard let run = runs[answered.attempt], case .resolving = run.phase else { return }
        begin(run, answered.answer)
    }

    /// A transfer ended by itself.
    func ended(_ finished: FinishedTransfer) {
        guard let run = finished.sink as? JobRun, !run.isOver else { return }
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
                throw Refusal(failure, run.plan)
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

    /// Ends a run whose transfer ended well, once all of its body is decoded.
    private func seal(_ run: JobRun) throws(Refusal) {
        try run.end()
        guard !run.hasWork else { return }
        run.phase = .sealing
        hashOn(run)
    }

    /// Ends a run whose body cannot be whole: without the body if its head is enough.
    private func giveUp(_ run: JobRun, _ refusal: Refusal) {
        if run.cut() { complete(run) } else { fail(run, refusal) }
    }

    /// Gives each transfer with bytes to decode a turn, and lets go on what waited for that.
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

    /// Waits a moment for the bodies of redirects, so that their connections can be used again; then cuts them off.
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

    /// Tells of a whole response.
    private func complete(_ run: JobRun) {
        do throws(Refusal) {
            let part = run.isCut ? nil : run.part()
            let (completion, body) = try run.complete()
            forget(run)
            link.send(Message(head: WorkerMessage.done(completion).encoded(), body: body)) { message in
                var held = run.held(loop.now)
                held.receivedBytes = completion.length
                held.part = part
                let discard = completion.file.map { file in { () -> Void in run.spool?.delete(file) } }
                return Outgoing(held: held, endedAt: loop.now, message: message, discard: discard)
            }
        } catch {
            fail(run, error)
        }
    }

    /// Ends a run from our side: its socket is closed and what came of it deleted before anything is said.
    func fail(_ run: JobRun, _ refusal: Refusal) {
        let receivedBytes = run.receivedBytes
        let unwantedBytes = refusal.code == .cancelled ? run.bytesOfPass : 0
        let part = refusal.code.leavesGoodBytes ? run.leave() : nil
        forget(run)
        refuse(run.job, refusal, receivedBytes: receivedBytes, unwantedBytes: unwantedBytes, part: part)
    }

    /// Lets go of all that a run holds.
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
        _ job: Job, _ refusal: Refusal, receivedBytes: Int = 0, unwantedBytes: Int = 0, part: BodyPart? = nil
    ) {
        let message = WorkerMessage.failed(
            job.attempt, code: refusal.code.rawValue, detail: refusal.detail, receivedBytes: receivedBytes,
            unwantedBytes: unwantedBytes, part: part)
        link.send(Message(head: message.encoded())) { message in
            // No other broker makes anything of a failure: it begins anew.
            Outgoing(
                held: HeldAttempt(attempt: job.attempt, url: job.url), endedAt: loop.now, message: message,
                discard: nil)
        }
    }

    private func watchOver(_ run: JobRun) {
        // By its name, not weakly: what was ever held weakly is counted in a slow way for life.
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
        if IPAddress(run.plan.host) != nil {
            connect(run, to: [run.plan.host], resolve: { _ in [] })
        } else if let answer = names.lookUp(run.plan.host, for: run.job.attempt) {
            begin(run, answer)
        }
    }

    private func begin(_ run: JobRun, _ answer: NameAnswer) {
        switch answer {
        case .addresses(let addresses):
            connect(run, to: addresses) { NameAnswer.resolveEntries(host: run.plan.host, port: run.plan.hostPort, $0) }
        case .unknown: fail(run, Refusal(.unknownHost))
        case .failed: fail(run, Refusal(.dnsFailed))
        }
    }

    /// Starts the transfer with the addresses that the policy admits. libcurl asks again before it connects, but after an
    /// address that it may not have it can wait for a part of the time to connect.
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
        let (connect, total) = run.timeLeft(loop.now)
        request.connectTimeout = connect
        request.totalTimeout = total ?? .zero
        do throws(CurlError) {
            run.phase = .transferring(
                try pool.start(request, host: run.plan.host, port: run.plan.hostPort, sink: run))
        } catch {
            fail(run, Refusal(.internalError, error.description))
        }
    }
}
