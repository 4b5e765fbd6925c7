internal import EarshotCore
internal import EarshotDurable
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Interpreter of the core's actions: messages, files, cache and durable requests. `BrokerProcess` calls it in each
/// pass.
extension BrokerProcess {
    /// Minimum length of a part of a body that is sent from its file, in bytes. Each such part holds a descriptor while it
    /// is unsent, so a client that reads nothing holds thirteen at most.
    private static let leastFilePart = 65_536

    /// Carries out actions until none are left. Sending can report events to the core that cause further actions.
    func carryOut() {
        while true {
            var actions = core.takeActions()
            guard !actions.isEmpty else {
                // Immediate answers of the cache can make flights ready for assignment.
                guard let cache, cache.hasAnswered else { return }
                cache.hasAnswered = false
                core.dispatch(now: Tick(nanoseconds: loop.now.nanoseconds)) { bus.hasUnread($0.rawValue) }
                continue
            }
            actions.reverseInPlace()
            while let action = actions.popLast() { carryOut(action) }
        }
    }

    // One switch over both levels: to bind a destination's action first would copy it.
    private func carryOut(_ action: Action) {
        switch action {
        case .client(.send(let client, .progress(let progress))): sendUnretained(client, progress)
        case .client(.send(let client, let message)): sendUnretained(client, message.encoded())
        case .client(.reply(let client, let message, let json, let number)):
            sendUnretained(client, NumberedAnswer(message, to: number).encoded(), json)
        case .client(.answer(let client, let query, let json)):
            sendUnretained(client, BrokerMessage.answer(query).encoded(), json)
        case .client(.deliver(let client, let terminal, let body)): deliver(terminal, body, to: client)
        case .client(.sendPiece(let client, let piece)): send(piece, to: client)
        case .client(.close(let client, let reason)):
            sendUnretained(client, BrokerMessage.goodbye(reason: reason).encoded())
            bus.close(client.rawValue)
        case .worker(.send(let worker, .limits(let limits))): send(limits, to: worker)
        case .worker(.send(let worker, let message)):
            if case .job(let job) = message { sendFiles(of: job.route, to: worker) }
            // A worker that is full or gone loses its jobs with its connection.
            send(message.encoded(), nil, to: worker)
        case .worker(.sendJob(let worker, let job, let body)):
            sendFiles(of: job.route, to: worker)
            send(PoolMessage.job(job).encoded(), bodies[body], to: worker)
        case .worker(.resumeJob(let worker, let job, let keys)):
            sendFiles(of: job.route, to: worker)
            send(PoolMessage.job(resumed(job, keys, by: worker)).encoded(), nil, to: worker)
        case .worker(.kill(let worker)): kill(worker)
        case .worker(.close(let worker)): disconnect(worker)
        case .spool(.spill(let body, let file)): spill(body, file)
        case .spool(.write(let body, let file)): makeFile(file, of: body)
        case .spool(.releaseBody(let body)): bodies.release(body)
        case .spool(.releaseFile(let file)): release(file)
        // If the file is missing, the worker does not find it either and starts from the beginning.
        case .spool(.assignPart(let kept, let name)):
            spool.rename(kept, to: name)
            parts?.renamed(kept, to: name)
        case .spool(.removePart(let name)):
            spool.remove(name)
            parts?.forget(name)
        case .spool(.recordPart(let file, let keys, let part)): parts?.record(file, keys, part)
        case .spool(.storePart(let file)): if parts?.store(file) != true { spool.remove(file) }
        case .spool(.sweep):
            parts?.recover()
            spool.sweepParts { core.isHeld($0) }
        case .cache(.lookUp(let flight, let key, let request)): lookUp(flight, key, request)
        case .cache(.read(let flight, let entry, let range)): read(flight, entry, range)
        case .cache(.store(let key, let variant, let body, let file, let owner)):
            cache?.store(key, variant, body.flatMap { bodies[$0] }, file: file.flatMap(spool.open), owner: owner)
        case .cache(.refresh(let key, let entry, let response)): cache?.refresh(key, entry, response)
        case .cache(.discard(let key, let entry)): cache?.discard(key, entry)
        case .cache(.invalidate(let urls)): cache?.invalidate(urls.map(\.description))
        case .cache(.limit(let bytes)): cache?.limit(bytes: bytes)
        case .durable(.readRows(let id, let principal)):
            durable?.submit(.rows(after: id?.rawValue, principal: principal?.description))
        case .durable(.store(let id, let principal, let acceptedAt, let head)):
            durable?.submit(
                .store(id: id.rawValue, principal: principal?.description, acceptedAt: acceptedAt, head: head))
        case .durable(.storeResult(let id, let result)): store(result, of: id)
        case .durable(.readResult(let id)): durable?.submit(.read(id: id.rawValue))
        case .durable(.reopen(let id, let acceptedAt)):
            durable?.submit(.reopen(id: id.rawValue, acceptedAt: acceptedAt))
        case .durable(.forget(let id)): durable?.submit(.forget(id: id.rawValue))
        case .durable(.limit(let bytes)): durable?.submit(.limit(bytes: bytes))
        case .supervisor(.killWorker(let pid)):
            logger.warning("a worker of the earlier broker does not answer: it is killed", metadata: ["pid": "\(pid)"])
            supervisor?.kill(worker: pid)
        case .supervisor(.settingChanged(let change)):
            logger.notice(
                "a client changed a setting", metadata: ["setting": "\(change.words.joined(separator: " "))"])
            settingsChanged()
            supervisor?.report(change)
        case .supervisor(.ended(let ended)): supervisor?.report(ended)
        case .log(.assigned(let assigned)): log(assigned)
        }
    }

    /// Sends the files that a job names to its worker, as far as it lacks them.
    private func sendFiles(of route: Route, to worker: WorkerID) {
        if let (message, content, workers) = jobFiles.changedHosts(now: loop.now) {
            // A worker that is full learns of the next change.
            for worker in workers { _ = work.send(message.encoded(), content, to: worker) }
        }
        guard !route.isUsual else { return }
        for (message, content) in jobFiles.messages(for: route, to: worker.rawValue) {
            // A worker that is full does not accept the JOB either.
            _ = work.send(message.encoded(), content, to: worker.rawValue)
        }
    }

    /// Sends a message to a worker. One on another machine may leave fewer bytes unread.
    private func send(_ head: [UInt8], _ body: [UInt8]?, to worker: WorkerID) {
        let kind: StreamPort.Kind = work.isGateway(worker.rawValue) ? .data : .reply
        if work.send(head, body, to: worker.rawValue, as: kind) == .wouldBlock { blocked(worker) }
    }

    /// Sends a worker its limits, with a folder of its own in the spool. A process of another PID namespace has no ID here, and no
    /// file.
    private func send(_ limits: WorkerLimits, to worker: WorkerID) {
        var limits = limits
        let pid = work.pid(of: worker.rawValue)
        if !limits.spool.isEmpty, pid > 0 { limits.spool = spool.makeFolder(of: pid) }
        send(PoolMessage.limits(limits).encoded(), nil, to: worker)
    }

    private func disconnect(_ worker: WorkerID) {
        guard !work.isGateway(worker.rawValue) else {
            logger.warning("disconnected a worker of another machine")
            return work.close(worker.rawValue)
        }
        logger.warning(
            "disconnected a worker that the user started", metadata: ["pid": "\(work.pid(of: worker.rawValue))"])
        work.close(worker.rawValue)
    }

    private func release(_ file: String) {
        // Content can be in both places, because the inline limit differed between two responses.
        bodies.release(file)
        spool.remove(file)
    }

    private func blocked(_ worker: WorkerID) {
        core.workerBlocked(worker, now: Tick(nanoseconds: loop.now.nanoseconds))
    }

    /// Spills a body. On failure it stays in memory, also for terminals of this pass that name its file.
    private func spill(_ body: BodyID, _ file: String) {
        do { try bodies.spill(body, as: file) } catch {
            logger.error("cannot spill a body", metadata: ["error": "\(error)"])
            core.spillFailed(body, now: Tick(nanoseconds: loop.now.nanoseconds))
        }
    }

    /// Sends a message that is not retained for a client that cannot accept it.
    private func sendUnretained(_ client: ClientID, _ head: [UInt8], _ body: [UInt8]? = nil) {
        guard bus.send(head, body, to: client.rawValue) == .wouldBlock else { return }
        // The broker does not read from a client with unread replies, so only replies to earlier messages get here.
        bus.close(client.rawValue)
    }

    /// Sends a PROGRESS. If the client cannot accept it, the core sends the current progress once it can.
    private func sendUnretained(_ client: ClientID, _ progress: Progress) {
        guard bus.send(BrokerMessage.progress(progress).encoded(), to: client.rawValue, as: .progress) == .wouldBlock
        else {
            return
        }
        core.progressRefused(progress.handler, progress.request, by: client)
        messageRefused(by: client)
    }

    /// Notes that a connection refused a message, so that the core learns when it accepts messages again.
    private func messageRefused(by client: ClientID) { refusing[client] = refusing[client] ?? false }

    private func deliver(_ terminal: Terminal, _ body: BodyID?, to client: ClientID) {
        // Preserves the order: no terminal overtakes one that was refused in this pass.
        guard refusing.isEmpty || refusing[client] != true else { return }
        if logsAccess { logAccess(terminal, of: core.principal(of: client)) }
        let (head, content) = message(of: terminal, body)
        switch bus.send(head, content, to: client.rawValue, as: .terminal) {
        case .wouldBlock:
            refusing[client] = true
            core.deliveryRefused(terminal.sequence, by: client)
        case .sent, .unreachable: break
        }
    }

    /// Sends a part of a body. No file is opened for a client that cannot accept it; the core repeats the action
    /// once it can.
    private func send(_ piece: BodyPiece, to client: ClientID) {
        guard bus.takesData(for: client.rawValue) else {
            pieceRefused(piece, by: client)
            return
        }
        let head = BrokerMessage.data(piece.data).encoded()
        let (offset, count) = (piece.data.offset, piece.length)
        let outcome: StreamPort.Sent
        if count >= Self.leastFilePart, let part = spool.part(of: piece.file, from: offset, count: count) {
            outcome = bus.send(head, part, to: client.rawValue)
        } else if case let bytes = spool.read(piece.file, from: offset, count: count), !bytes.isEmpty {
            outcome = bus.send(head, bytes, to: client.rawValue, as: .data)
        } else {
            core.pieceLost(piece, by: client, now: Tick(nanoseconds: loop.now.nanoseconds))
            return
        }
        if outcome == .wouldBlock { pieceRefused(piece, by: client) }
    }

    private func pieceRefused(_ piece: BodyPiece, by client: ClientID) {
        core.pieceRefused(piece, by: client)
        messageRefused(by: client)
    }
}
